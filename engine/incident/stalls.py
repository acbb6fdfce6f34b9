"""When an engine stood still: its server answers, requests run, and no token comes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.messages import EngineState

LEAST_S: Final = 10.0
"""Seconds without a token: less comes of a long prompt, or of a busy machine."""
MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Stall:
    """Requests ran, and no token came."""

    start: float
    """Unix time, seconds; so is `end`."""
    end: float
    running: int
    """Requests at most."""
    answered: bool
    """Whether the engine core, which the plugin's word comes from, answered meanwhile."""

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.start

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "start": self.start, "end": self.end, "running": self.running,
            "engine_core_answered": self.answered,
        }  # fmt: skip


@dataclass(slots=True)
class StallWatch:
    """Finds stalls in readings that come one by one, the oldest first."""

    found: list[Stall] = field(default_factory=list)
    _now: Stall | None = None
    _state: EngineState | None = None

    def add(self, reading: Reading) -> None:
        """One more reading."""
        before, self._state = self._state, reading.state
        window, sample = reading.window, reading.sample
        idle = (
            window is None
            or not window.seconds
            or window.generated != 0
            or sample is None
            or not (sample.running or 0) >= 1
            or _made_steps(before, reading.state)
        )
        if idle or window is None or sample is None:
            self.end()
            return
        answered = reading.state is not None
        running = int(sample.running or 0)
        now = self._now
        if now is None:
            self._now = Stall(reading.t - window.seconds, reading.t, running, answered)
        else:
            self._now = Stall(
                now.start, reading.t, max(now.running, running), now.answered or answered
            )

    def end(self) -> None:
        """No more readings of it."""
        now, self._now = self._now, None
        if now is not None and now.seconds >= LEAST_S:
            self.found.append(now)
            if len(self.found) > MOST:
                self.found.remove(min(self.found, key=lambda one: one.seconds))


def _made_steps(before: EngineState | None, now: EngineState | None) -> bool:
    """Whether the engine worked: steps that compute prompts bring no token."""
    if before is None or now is None:
        return False
    return before.instance != now.instance or now.step > before.step
