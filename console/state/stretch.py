"""A stretch of time as charts show it: lowest and highest figures of each column, and events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from specdeck.console.state.engine_state import ChartPoint, Track
from specdeck.console.state.past import History, PastEvent, place
from specdeck.console.widgets.blocks import first_shown
from specdeck.engine.blackbox.summary import Extent

LANE: Final = 500
"""Events of one stretch of time that are drawn: a lane has no more columns."""


@dataclass(frozen=True, slots=True)
class Range:
    """The lowest and the highest figure of a column."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time as charts show it: a range for each column, None where nothing is known."""

    start: float
    seconds: float
    tokens: tuple[Range | Extent | None, ...]
    acceptance: tuple[Range | Extent | None, ...]
    events: tuple[PastEvent, ...] = ()
    cursor: float | None = None
    """The moment that is looked at; None for now, which is the end."""

    def column(self, t: float) -> int | None:
        """Where a moment is; None outside.

        >>> stretch = Stretch(100.0, 60.0, (None,) * 30, (None,) * 30)
        >>> stretch.column(100.0), stretch.column(159.9), stretch.column(160.0), stretch.column(9.0)
        (0, 29, 29, None)
        """
        return place(t, self.start, self.seconds, len(self.tokens))


def read_stretch(history: History, start: float, seconds: float, columns: int) -> Stretch:
    """A stretch of what is recorded."""
    found = history.overview(start, start + seconds, columns)
    return Stretch(
        start,
        seconds,
        tuple(one.tokens for one in found),
        tuple(one.acceptance for one in found),
        tuple(history.events(start, start + seconds, LANE)),
    )


def blank_stretch(start: float, seconds: float, columns: int) -> Stretch:
    """A stretch of which nothing is known."""
    return Stretch(start, seconds, (None,) * columns, (None,) * columns)


def fold_recent(track: Track, seconds: float, columns: int) -> Stretch:
    """The latest readings of an engine.

    Columns begin at whole multiples of their width, and a chart that is full moves on by a
    quarter: from one reading to the next only the last column changes.
    """
    if not track.points:
        return blank_stretch(0.0, seconds, columns)
    width = seconds / columns
    last = int(track.points[-1].t / width)
    first = first_shown(last + 1, columns)
    inside = [point for point in track.points if int(point.t / width) >= first]
    cells: list[list[ChartPoint]] = [[] for _ in range(columns)]
    for point in inside:
        cells[min(columns - 1, int(point.t / width) - first)].append(point)
    return Stretch(
        first * width,
        seconds,
        tuple(_span_of(point.tokens for point in cell) for cell in cells),
        tuple(_span_of(point.acceptance for point in cell) for cell in cells),
    )


def _span_of(values: Iterable[float | None]) -> Range | None:
    known = [value for value in values if value is not None]
    return Range(min(known), max(known)) if known else None


def join_stretches(earlier: Stretch, later: Stretch) -> Stretch:
    """The later one with the columns that it lacks at its beginning."""
    count = len(earlier.tokens)
    return replace(
        later,
        tokens=(*earlier.tokens, *later.tokens[count:]),
        acceptance=(*earlier.acceptance, *later.acceptance[count:]),
        events=(*earlier.events, *later.events),
    )
