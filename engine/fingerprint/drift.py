"""Follows an engine's names between readings, and says when it drifts from its pin.

A reading carries the path's name; the facts behind it are asked for only when that moved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdeck.engine.errors import SpecdeckError, Unsupported
from specdeck.engine.fingerprint.compare import Comparison, compare
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.pins import Pin
from specdeck.engine.metrics.reading import Reading

APART_S = 5.0
"""Between two looks at the facts of one engine."""

POLICY_APART_S = 60.0
"""The same while a policy moves k, and the path's name with it, as often as it likes."""

Look = Callable[[], Awaitable[Fingerprint]]


@dataclass(frozen=True, slots=True)
class Drift:
    """An engine that is no longer what its pin says, or is it again."""

    t: float
    """Unix time, seconds."""
    pin: Path
    comparison: Comparison

    @property
    def line(self) -> str:
        """For one line: an event, or a message on stderr."""
        if self.comparison.same:
            return f"as pinned again: {self.pin.name}"
        return f"drift from {self.pin.name}: {'; '.join(self.comparison.lines())}"

    def as_json(self) -> dict[str, Any]:
        """What a webhook gets; names and words, and no facts."""
        found = self.comparison
        return {
            "event": "fingerprint.restored" if found.same else "fingerprint.drift",
            "t": round(self.t, 3),
            "engine": found.after.url,
            "pin": str(self.pin),
            "verdict": found.verdicts[0][0],
            "text": self.line,
            "layers": found.layers,
            "before": found.before.names,
            "after": found.after.names,
            "system_fingerprint": {
                "before": found.before.system_fingerprint,
                "after": found.after.system_fingerprint,
                "moved": found.own_moved,
            },
            "differences": [one.line() for one in found.differences[:20]],
        }


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look at the facts brought."""

    seen: Fingerprint
    comparison: Comparison | None = None
    """With the pin; None without one, and while the engine still reads its weights."""
    drift: Drift | None = None
    """Set when that is news."""


class Judge:
    """Compares what is seen with a pin, and knows what it has told already.

    A k that moves on while it differs from its pin anyway is no second event.
    """

    def __init__(self, pinned: Fingerprint, place: Path) -> None:
        self.pinned = pinned
        self.place = place
        self._told: frozenset[str] = frozenset()

    def sight(self, seen: Fingerprint, t: float) -> Sight:
        """The comparison, with the event if there is one."""
        if not seen.progress.finished:
            return Sight(seen)
        found = compare(self.pinned, seen)
        differing = frozenset(
            (*(d.fact for d in found.differences), *(k for k, _ in found.verdicts))
        )
        differing = frozenset() if found.same else differing
        news, self._told = differing != self._told, differing
        return Sight(seen, found, Drift(t, self.place, found) if news else None)


def judged(pin: Pin, old: Judge | None) -> tuple[Judge | None, str | None]:
    """Who judges by what a pin's file holds now, and what to tell of it; None where nothing moved.

    A file that was written again with the same pin in it keeps the judge, and what it has told.
    """
    if pin.seen is None:
        return None, None if old is None else f"the pin {old.place.name} is gone"
    if old is not None and (old.pinned, old.place) == (pin.seen, pin.place):
        return old, None
    what = "a pin" if old is None else "another pin"
    return Judge(pin.seen, pin.place), f"{what} is in {pin.place.name}: compared with it from now"


class Follower:
    """One engine's names, followed through its readings."""

    def __init__(self, look: Look, judge: Judge | None = None) -> None:
        self._look = look
        self.judge = judge
        """None for an engine without a pin."""
        self._name: str | None = None
        self._looked = float("-inf")
        self._busy = False

    def due(self, reading: Reading) -> bool:
        """Whether the facts have to be looked at after this reading."""
        if reading.restarted:
            self._name = None
        name = _name(reading)
        if self._busy or name is None or name == self._name:
            return False
        policy = reading.state.policy if reading.state is not None else "fixed"
        apart = APART_S if policy == "fixed" else POLICY_APART_S
        return self._name is None or reading.t - self._looked >= apart

    def expect(self, pin: Pin) -> str | None:
        """Compare with this pin from now on, the facts anew; what to tell of it."""
        self.judge, news = judged(pin, self.judge)
        if news is not None:
            self._name = None
        return news

    async def sight(self, reading: Reading) -> Sight | None:
        """What a look brings; None where the engine does not answer, which is asked again."""
        self._busy, self._looked = True, reading.t
        name = _name(reading)
        try:
            seen = await self._look()
        except SpecdeckError:
            self._name = self._name or ""  # the next try keeps its distance
            return None
        finally:
            self._busy = False
        # The path may have moved on since the reading; the next one tells.
        self._name = (
            (name if reading.state is None else seen.path) if seen.progress.finished else ""
        )
        return Sight(seen) if self.judge is None else self.judge.sight(seen, reading.t)


def _name(reading: Reading) -> str | None:
    """What stands for the path in a reading; None where nothing can be known at all."""
    if not reading.up:
        return None
    if reading.state is not None:
        return reading.state.fingerprint
    return "outside" if isinstance(reading.control_error, Unsupported) else None
