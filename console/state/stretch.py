"""A stretch of time as charts show it: lowest and highest figures of each column, and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from specdeck.console.state.engine_state import ChartPoint, Track
from specdeck.console.state.past import History, PastEvent, place
from specdeck.console.widgets.blocks import first_shown
from specdeck.engine.blackbox.summary import Extent

LANE: Final = 500
"""Events of one stretch of time that are drawn: a lane has no more columns."""
LONGEST_WAIT: Final = 2.5
"""Times as long as usual until the next reading: one that comes later leaves a gap."""


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
    shown = bridge_columns([one.readings for one in found])
    return Stretch(
        start,
        seconds,
        tuple(found[column].tokens for column in shown),
        tuple(found[column].acceptance for column in shown),
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
    shown = [cells[column] for column in bridge_columns([len(cell) for cell in cells])]
    return Stretch(
        first * width,
        seconds,
        tuple(_span_of(point.tokens for point in cell) for cell in shown),
        tuple(_span_of(point.acceptance for point in cell) for cell in shown),
    )


def bridge_columns(readings: Sequence[int]) -> list[int]:
    """The column whose figures each column shows, by how many readings each of them has.

    That is its own. One without a reading shows the nearest that has some, where columns are
    narrower than readings are apart: a hole would look like a stall. It stays blank where no
    reading was made for longer than LONGEST_WAIT times as long as usual.

    >>> bridge_columns([1, 1, 0, 1, 1])
    [0, 1, 1, 3, 4]
    >>> bridge_columns([1, 1, 0, 0, 0, 1, 1]), bridge_columns([9, 9, 0, 9, 9])
    ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4])
    """
    shown = list(range(len(readings)))
    held = [column for column in shown if readings[column]]
    pairs = list(pairwise(held))
    if len(pairs) < 2:
        return shown  # nothing tells what is usual
    ordered = sorted(after - before for before, after in pairs)
    middle = ordered[(len(ordered) - 1) // 2]
    usual = [(before, after) for before, after in pairs if after - before <= 2 * middle]
    apart = sum(after - before for before, after in usual) / sum(readings[at] for at, _ in usual)
    for before, after in pairs:
        if after - before <= LONGEST_WAIT * apart:
            for column in range(before + 1, after):
                shown[column] = before if column - before <= after - column else after
    return shown


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
