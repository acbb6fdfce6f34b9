"""Watches one engine for drift from its pin: beside its readings, or whenever it is asked to.

A reading carries the path's name; the facts behind it are fetched only when that moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specdeck.engine.errors import SpecdeckError, Unsupported
from specdeck.engine.fingerprint.compare import Comparison, compare
from specdeck.engine.fingerprint.fingerprint import STALLED_S, Fingerprint
from specdeck.engine.fingerprint.pins import Pin, PinFile
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.operations.recurrence import find_well_s

APART_S = 5.0
"""Between two fetches of one engine's facts."""

POLICY_APART_S = 60.0
"""The same while a policy moves k, and the path's name with it, as often as it likes."""

FAILING_S = 15.0
"""For how long facts must fail to be fetched before it is said: an engine may be busy."""

_UNAVAILABLE = "unavailable"
"""What keeps facts from being compared, whatever the error: one engine may fail in several ways."""

Fetch = Callable[[Fingerprint | None], Awaitable[Fingerprint]]
"""Brings the fingerprint as it is now, to be compared with the pin that it is given."""


@dataclass(frozen=True, slots=True)
class Drift:
    """An engine that no longer matches its pin, differs in another way, or matches it again."""

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
            "kind": "drift",
            "t": round(self.t, 3),
            "engine": found.after.url,
            "pin": str(self.pin),
            "verdict": found.verdicts[0][0],
            "text": self.line,
            "layers": found.layers,
            "before": found.before.names,
            "after": found.after.names,
            "system_fingerprint": found.system_fingerprints,
            "differences": [one.line() for one in found.differences[:20]],
        }


_MOVING = "live.k"
"""What policies and operators move again and again."""
_MOST_REPORTS = 20


class DriftDetector:
    """Compares fingerprints with one pin, and knows what it has reported already.

    A k that moves on while it differs from its pin anyway is no second drift. Whatever else
    becomes of a fact that differs is, unless it was reported of this drift before: behind one
    address may be two engines that answer by turns. For the same reason a drift that comes again
    within ten minutes is over only once nothing has differed for a minute, then for two, up to
    sixteen. A drift that is ever another is reported `_MOST_REPORTS` times.
    """

    def __init__(self, pinned: Fingerprint, place: Path) -> None:
        self.pinned = pinned
        self.place = place
        self._reported: set[frozenset[tuple[str, ...]]] = set()
        """All that the present drift has been; none while there is none."""
        self._well_s = 0.0
        """For how long nothing may differ before it is over."""
        self._well_since: float | None = None
        """Unix time; None while something differs."""
        self._over_at: float | None = None
        """Unix time of the last one's end."""

    def detect(self, found: Fingerprint, t: float) -> tuple[Comparison, Drift | None]:
        """The comparison with the pin at Unix time `t`, and the drift where that is news."""
        comparison = compare(self.pinned, found)
        is_news = self._is_over(t) if comparison.same else self._is_another(comparison, t)
        return comparison, Drift(t, self.place, comparison) if is_news else None

    def is_ending(self, t: float) -> bool:
        """Whether a drift would be over at Unix time `t` if nothing differs by then."""
        if not self._reported or self._well_since is None:
            return False
        return not 0 <= t - self._well_since < self._well_s  # a clock may be set back

    def _is_over(self, t: float) -> bool:
        if not self._reported:
            return False
        if self._well_since is None or t < self._well_since:  # a clock may be set back
            self._well_since = t
        if t - self._well_since < self._well_s:
            return False
        self._reported.clear()
        self._over_at = t
        return True

    def _is_another(self, comparison: Comparison, t: float) -> bool:
        self._well_since = None
        facts = (
            (one.fact,) if one.fact == _MOVING else (one.fact, repr(one.after))
            for one in comparison.differences
        )
        differing = frozenset((*facts, *((kind,) for kind, _ in comparison.verdicts)))
        if differing in self._reported or len(self._reported) >= _MOST_REPORTS:
            return False
        if not self._reported:
            self._well_s = find_well_s(self._well_s, self._over_at, t)
        self._reported.add(differing)
        return True


@dataclass(frozen=True, slots=True)
class FactsRead:
    """The engine's facts were fetched."""

    fingerprint: Fingerprint
    comparison: Comparison | None = None
    """With the pin; None without one, while the engine still reads its weights, and while a sweep
    or a trial moves k."""
    pin: Path | None = None
    """Where that pin lies."""


@dataclass(frozen=True, slots=True)
class PinMoved:
    """The pin's file holds another pin than it did, or none."""

    place: Path
    change: Literal["found", "replaced", "gone"]

    @property
    def line(self) -> str:
        """For one line.

        >>> PinMoved(Path("/pins/demo.json"), "replaced").line
        'another pin is in demo.json: compared with it from now'
        """
        if self.change == "gone":
            return f"the pin {self.place.name} is gone"
        what = "a pin" if self.change == "found" else "another pin"
        return f"{what} is in {self.place.name}: compared with it from now"


@dataclass(frozen=True, slots=True)
class PinUnread:
    """The pin's file cannot be used."""

    error: SpecdeckError
    is_compared: bool
    """Whether the engine is still compared with what the file held before."""

    @property
    def line(self) -> str:
        """For one line."""
        before = "; compared with what it held before" if self.is_compared else ""
        return f"{self.error.line()}{before}"


@dataclass(frozen=True, slots=True)
class MovedMeanwhile:
    """A sweep or a trial has moved the path: compared with the pin once it is over."""

    mover: str
    """Whose it is, as `EngineState.mover` has it."""
    pin: Path

    @property
    def line(self) -> str:
        """For one line.

        >>> MovedMeanwhile("ann's sweep", Path("/pins/demo.json")).line
        "ann's sweep moves k: compared with demo.json once it is over"
        """
        return f"{self.mover} moves k: compared with {self.pin.name} once it is over"


@dataclass(frozen=True, slots=True)
class FactsUnavailable:
    """The engine's facts could not be fetched."""

    error: SpecdeckError

    @property
    def line(self) -> str:
        """For one line."""
        return self.error.line()


@dataclass(frozen=True, slots=True)
class NotComparable:
    """An engine whose facts cannot be had, and whose path has another name than the pin's, or
    none that is known."""

    t: float
    """Unix time, seconds."""
    engine: str
    """Its URL."""
    pin: Path
    reason: str
    """For one line."""
    is_named: bool = True
    """Whether the path's name is known, and is not the pin's."""

    @property
    def line(self) -> str:
        """For one line.

        >>> pin = Path("/pins/demo.json")
        >>> NotComparable(0.0, "http://e:1", pin, "no answer").line
        'not as pinned by name, and cannot be compared with demo.json: no answer'
        >>> NotComparable(0.0, "http://e:1", pin, "no answer", is_named=False).line
        'cannot be compared with demo.json: no answer'
        """
        name = "not as pinned by name, and " if self.is_named else ""
        return f"{name}cannot be compared with {self.pin.name}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """What a webhook gets."""
        return {
            "event": "fingerprint.incomparable",
            "kind": "drift",
            "t": round(self.t, 3),
            "engine": self.engine,
            "pin": str(self.pin),
            "text": self.line,
        }


DriftEvent = (
    FactsRead | Drift | MovedMeanwhile | PinMoved | PinUnread | FactsUnavailable | NotComparable
)


class DriftWatcher:
    """One engine, its pin, and what was reported of them."""

    def __init__(self, fetch: Fetch, pins: PinFile, *, names_unpinned: bool = True) -> None:
        """`names_unpinned`: whether facts are fetched while there is not a pin to compare with."""
        self._fetch = fetch
        self._pins = pins
        self._names_unpinned = names_unpinned
        self._detector: DriftDetector | None = None
        self._has_read_pin = False
        self._name: str | None = None
        """What stood for the path at the last fetch; None when it must be fetched."""
        self._fetched_at = float("-inf")
        self._is_by_facts = False
        """Whether nothing but facts told the path's name then."""
        self._is_busy = False
        self._mover: str | None = None
        """Whose sweep or trial moved k in the last reading."""
        self._is_mover_told = False
        self._obstacle: object = None
        """What keeps the facts from being compared; None where nothing does."""
        self._obstacle_since = float("-inf")
        self._is_obstacle_told = False

    @property
    def pinned(self) -> Fingerprint | None:
        """What the engine is compared with."""
        return None if self._detector is None else self._detector.pinned

    async def open(self) -> None:
        """Read the pin once; raises UsageError for one that cannot be used, or is required."""
        self._has_read_pin = True
        found = await asyncio.to_thread(self._pins.read_if_changed)
        if found is not None:
            self._expect(found)

    def is_due(self, reading: Reading) -> bool:
        """Whether `follow` has anything to do after this reading."""
        if self._is_busy:
            return False
        self._note_state(reading)
        moved = self._has_moved(reading) or self._is_mover_news(reading)
        return moved or (reading.up and self._pins.is_due(reading.t))

    async def follow(self, reading: Reading) -> AsyncIterator[DriftEvent]:
        """Look at the pin, and at the facts where they or the pin may have moved.

        One whose facts cannot be had is asked again later; where its name is not the pin's, or is
        not known for `STALLED_S`, that it cannot be compared is said once, until it could be.
        """
        if self._is_busy:
            return
        self._is_busy = True
        try:
            for event in await self._reread_pin():
                yield event
            self._note_state(reading)
            if self._is_mover_news(reading) and self._mover and self._detector:
                self._is_mover_told = True
                yield MovedMeanwhile(self._mover, self._detector.place)
            if not self._has_moved(reading):
                return
            if reading.restarted:
                self._obstacle = None
            name, self._fetched_at = _path_name(reading), reading.t
            self._is_by_facts = name is None
            try:
                found = await self._fetch(self.pinned)
            except SpecdeckError as error:
                self._name = self._name or ""  # the next try keeps its distance
                for event in self._meet(
                    _UNAVAILABLE, FAILING_S, error.line(), t=reading.t, url=reading.url, name=name
                ):
                    yield event
                return
            # The path may have moved on since the reading; the next one tells.
            at = found.path if name is None or reading.state is not None else name
            is_final = found.progress.finished and self._mover is None
            self._name = at if is_final else ""
            for event in self._compare(found, t=reading.t, url=reading.url, name=name):
                yield event
        finally:
            self._is_busy = False

    async def verify(self, t: float, url: str) -> AsyncIterator[DriftEvent]:
        """Look at the pin and at the facts of the engine at `url` now, at Unix time `t`, whatever
        they were before.

        That they cannot be had for `STALLED_S`, or do not get on, is said once, until they could be
        compared.
        """
        for event in await self._reread_pin():
            yield event
        try:
            found = await self._fetch(self.pinned)
        except SpecdeckError as error:
            yield FactsUnavailable(error)
            for event in self._meet(_UNAVAILABLE, STALLED_S, error.line(), t=t, url=url):
                yield event
            return
        for event in self._compare(found, t=t, url=url):
            yield event

    def judge(self, found: Fingerprint, t: float) -> Iterator[DriftEvent]:
        """What a fingerprint means at Unix time `t`, whoever fetched it."""
        if self._detector is None or not found.progress.finished or self._mover is not None:
            yield FactsRead(found)
            return
        self._obstacle, self._is_obstacle_told = None, False
        comparison, drift = self._detector.detect(found, t)
        yield FactsRead(found, comparison, self._detector.place)
        if drift is not None:
            yield drift

    def _compare(
        self, found: Fingerprint, *, t: float, url: str, name: str | None = None
    ) -> Iterator[DriftEvent]:
        """What a fetched fingerprint means, and that it gets no further; `name` as in `_meet`."""
        yield from self.judge(found, t)
        progress = found.progress
        if not progress.finished:
            yield from self._meet(
                progress.place, STALLED_S, progress.line(), t=t, url=url, name=name
            )

    def _meet(
        self,
        obstacle: object,
        patience_s: float,
        reason: str,
        *,
        t: float,
        url: str,
        name: str | None = None,
    ) -> Iterator[NotComparable]:
        """What is to be said of an obstacle to the comparison that a fetch has met.

        `name` is the path's, where it is known.
        """
        if obstacle != self._obstacle or t < self._obstacle_since:
            self._obstacle, self._obstacle_since = obstacle, t
        if self._detector is None or self._is_obstacle_told:
            return
        if name is None:
            patience_s = STALLED_S  # a core that is busy for long answers neither
        elif self._mover is not None or name == self._detector.pinned.path:
            return
        if t - self._obstacle_since < patience_s:
            return
        self._is_obstacle_told = True
        yield NotComparable(t, url, self._detector.place, reason, is_named=name is not None)

    def adopt(self, pinned: Fingerprint, place: Path, t: float) -> Iterator[DriftEvent]:
        """Compare with a pin that was written here just now, which is no news from elsewhere."""
        self._pins.mark_known(place)
        self._detector = DriftDetector(pinned, place)
        return self.judge(pinned, t)

    async def _reread_pin(self) -> tuple[DriftEvent, ...]:
        """Go by the pin as its file is now; one that cannot be used leaves the old one."""
        is_first, self._has_read_pin = not self._has_read_pin, True
        try:
            found = await asyncio.to_thread(self._pins.read_if_changed)
        except SpecdeckError as error:
            return (PinUnread(error, self._detector is not None),)
        moved = None if found is None else self._expect(found)
        return () if moved is None or is_first else (moved,)

    def _expect(self, pin: Pin) -> PinMoved | None:
        """Compare with `pin` from now on; None where it is the one of before.

        A file that was written again with the same pin in it keeps what was reported.
        """
        old = self._detector
        if pin.fingerprint is None:
            if old is None:
                return None
            self._detector, self._name = None, None
            return PinMoved(old.place, "gone")
        if old is not None and (old.pinned, old.place) == (pin.fingerprint, pin.place):
            return None
        self._detector, self._name = DriftDetector(pin.fingerprint, pin.place), None
        return PinMoved(pin.place, "found" if old is None else "replaced")

    def _note_state(self, reading: Reading) -> None:
        """Who moves k at this moment, and that an engine has its known name again; one that does
        not tell leaves both as they were."""
        if not reading.up or _is_nameless(reading):
            return
        name = _path_name(reading)
        if name is not None and name == self._name:
            self._obstacle, self._is_obstacle_told = None, False
        mover = None if reading.state is None else reading.state.mover
        if mover != self._mover:
            self._mover, self._is_mover_told = mover, False

    def _is_mover_news(self, reading: Reading) -> bool:
        """Whether it is to be said why a path that is not the pinned one is no drift."""
        if self._mover is None or self._is_mover_told or self._detector is None:
            return False
        return _path_name(reading) != self._detector.pinned.path

    def _has_moved(self, reading: Reading) -> bool:
        """Whether the facts have to be fetched after this reading."""
        if reading.restarted:
            self._name = None
        if self._detector is None and not self._names_unpinned:
            return False
        name = _path_name(reading)
        is_unknown = _is_nameless(reading) or _is_of_unlike_ranks(reading)
        if name is None and self._detector is not None and is_unknown:
            apart = POLICY_APART_S if self._is_by_facts and self._obstacle is None else APART_S
            return self._is_due(reading, apart)
        if name is None:
            return False
        if name == self._name:
            is_ending = self._detector is not None and self._detector.is_ending(reading.t)
            return is_ending and self._is_due(reading, APART_S)
        if self._name is not None and self._mover is not None:
            return False  # a sweep or a trial moves it to and fro; its end is compared
        policy = reading.state.policy if reading.state is not None else "fixed"
        apart = APART_S if policy == "fixed" else POLICY_APART_S
        return self._name is None or self._is_due(reading, apart)

    def _is_due(self, reading: Reading, apart: float) -> bool:
        """Whether the last fetch is `apart` seconds ago, or by a clock that was set back since."""
        return not 0 <= reading.t - self._fetched_at < apart


def _is_nameless(reading: Reading) -> bool:
    """Whether an engine that answers has a plugin that does not, as one broken by an upgrade."""
    error = reading.control_error
    is_silent = reading.up and reading.state is None and error is not None
    return is_silent and not isinstance(error, Unsupported)


def _is_of_unlike_ranks(reading: Reading) -> bool:
    """Whether there is no one name for the path, as data-parallel ranks have several."""
    return reading.state is not None and reading.state.fingerprint is None


def _path_name(reading: Reading) -> str | None:
    """What stands for the path in a reading; None where nothing can be known at all."""
    if not reading.up:
        return None
    if reading.state is not None:
        return reading.state.fingerprint
    return "outside" if isinstance(reading.control_error, Unsupported) else None
