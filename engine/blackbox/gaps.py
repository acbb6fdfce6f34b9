"""Time of which a record does not tell a figure, and falls of the figure across it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from specdeck.engine.blackbox.falls import (
    COLUMN_S,
    FIGURES,
    Fall,
    Figure,
    Overviewed,
    Silence,
    compare_sides,
    find_fall_across,
    is_end_of_load,
    is_of_deeper_drafts,
)
from specdeck.engine.metrics.reading import Reading

GAP_S: Final = 30.0
"""Seconds: a shorter one hides no fall that lasts."""
_MANY: Final = 3.0
"""Times the time between two readings: one so long after another has missed some."""
_MOST: Final = 200
"""Of a figure, the longest: an engine with little to do has one after every request."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of time of which a figure is not known."""

    start: float
    """Unix time, seconds; so is `end`."""
    end: float
    silence: Silence

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"start": self.start, "end": self.end, "silence": self.silence}


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much is known of a figure over some time."""

    known_s: float
    """Seconds that lie in no gap."""
    gaps: tuple[Gap, ...]
    """By time; of very many the longest."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"known_s": self.known_s, "gaps": [one.as_json() for one in self.gaps]}


class GapWatch:
    """Finds the gaps of a figure in readings that come one by one, the oldest first."""

    def __init__(self, figure: Figure, start: float) -> None:
        self._figure = figure
        self._known = self._read = start
        """Unix time up to which the figure is known or a gap was found, and of the last reading."""
        self._usual_s: float | None = None
        """Between two readings."""
        self._silent_s = _no_silence()
        self._found: list[Gap] = []
        self._known_s = 0.0

    def add(self, reading: Reading) -> None:
        """One more reading."""
        window = reading.window
        if window is not None and window.seconds > max(GAP_S, _MANY * (self._usual_s or math.inf)):
            # Of a machine that slept: a mean does not tell when a figure fell.
            self._know(max(self._known, reading.t), reading.t)
            return
        value = None
        if window is not None:
            is_acceptance = self._figure == "acceptance"
            value = window.acceptance_rate if is_acceptance else window.tokens_per_second
            self._usual_s = window.seconds
        if window is None or value is None:
            self._keep_silence(reading.t, "unknown" if reading.up else "down")
            return
        self._know(max(self._known, reading.t - window.seconds), reading.t)

    def end(self, t: float) -> Coverage:
        """What is known up to `t`, Unix seconds: no more readings come."""
        self._know(max(self._known, t), t)
        return Coverage(self._known_s, tuple(self._found))

    def _keep_silence(self, t: float, silence: Silence) -> None:
        """Nothing is known of the time since the last reading, for which there is a reason if there
        was one shortly before."""
        seconds = max(0.0, t - self._read)
        self._silent_s["unrecorded" if seconds > GAP_S else silence] += seconds
        self._read = max(self._read, t)

    def _know(self, start: float, end: float) -> None:
        """The figure is known from `start` to `end`, and of the time before that it is not."""
        self._keep_silence(start, "unrecorded")
        seconds = start - self._known
        if seconds > GAP_S:
            silence = max(self._silent_s, key=lambda one: self._silent_s[one])
            self._found.append(Gap(self._known, start, silence))
            if len(self._found) > _MOST:
                self._found.remove(min(self._found, key=lambda one: one.seconds))
        else:
            self._known_s += seconds
        self._known_s += max(0.0, end - start)
        self._known = self._read = max(start, end)
        self._silent_s = _no_silence()


def _no_silence() -> dict[Silence, float]:
    """Seconds by what they lack."""
    return {"unrecorded": 0.0, "down": 0.0, "unknown": 0.0}


def measure_coverage(
    readings: Iterable[Reading], start: float, end: float
) -> Mapping[Figure, Coverage]:
    """Of each figure, from `start` to `end`, Unix seconds."""
    watches = {figure: GapWatch(figure, start) for figure in FIGURES}
    for reading in readings:
        for watch in watches.values():
            watch.add(reading)
    return {figure: watch.end(end) for figure, watch in watches.items()}


def place_at_gap(history: Overviewed, fall: Fall, coverage: Mapping[Figure, Coverage]) -> Fall:
    """A fall with the gap that it is in, or at whose end it is seen; the same one elsewhere.

    Raises SpecdeckError for a record that cannot be read.
    """
    known = coverage.get(fall.figure)
    for gap in () if known is None else known.gaps:
        if gap.start <= fall.t <= gap.end + COLUMN_S:
            sides = compare_sides(history, fall.figure, gap.end, gap.start)
            before, after = sides or (fall.before, fall.after)
            return Fall(fall.figure, gap.end, before, after, gap.start, gap.silence)
    return fall


def list_falls_across(history: Overviewed, coverage: Mapping[Figure, Coverage]) -> tuple[Fall, ...]:
    """Falls of figures that are lower after a gap than before it, by time.

    Raises SpecdeckError for a record that cannot be read.
    """
    drops = list_drops_across(history, coverage)
    return tuple(one for one in drops if not is_end_of_load(history, one))


def list_drops_across(history: Overviewed, coverage: Mapping[Figure, Coverage]) -> tuple[Fall, ...]:
    """As `list_falls_across`, with the ends of the load."""
    found: list[Fall] = []
    for figure, known in coverage.items():
        for gap in known.gaps:
            sides = find_fall_across(history, figure, gap.start, gap.end)
            if sides is None:
                continue
            fall = Fall(figure, gap.end, *sides, since=gap.start, silence=gap.silence)
            if not is_of_deeper_drafts(history, fall):
                found.append(fall)
    return tuple(sorted(found, key=lambda one: one.t))
