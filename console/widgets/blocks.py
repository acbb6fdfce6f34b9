"""What charts show, and how it is drawn in block elements: pure, from numbers to characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specdeck.console.widgets.cells import BLANK, NOTHING, Cell, Cells, Row

_LEAST, _MOST = 1e-6, 1e300
"""The peaks that an axis is made for: what is less is drawn as nothing, and no end is infinite."""
_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def nice_bound(peak: float) -> float:
    """The smallest round number that is not below `peak`.

    >>> [nice_bound(peak) for peak in (0.0, 0.7, 7.0, 512.0, 1001.0)]
    [1.0, 0.8, 8.0, 600.0, 1500.0]
    >>> nice_bound(5e-324), nice_bound(1e-10)
    (1.0, 1.0)
    """
    if peak < _LEAST:
        return 1.0
    peak = min(peak, _MOST)
    unit = 10.0 ** math.floor(math.log10(peak))
    return round(next(step for step in _STEPS if step * unit >= peak * (1 - 1e-9)) * unit, 9)


def axis_top(previous: float | None, peak: float) -> float:
    """The axis' end for values up to `peak`, kept as long as it serves.

    A new scale repaints the whole chart, so it falls only when the curve has sunk
    well below the middle.

    >>> axis_top(None, 500.0), axis_top(600.0, 590.0)
    (600.0, 600.0)
    >>> axis_top(600.0, 200.0), axis_top(600.0, 610.0)
    (300.0, 800.0)
    """
    if previous is not None and 0.4 * previous <= peak <= previous:
        return previous
    return nice_bound(peak * 1.1)


def bar(share: float | None, width: int) -> tuple[str, str]:
    """A bar of `width` cells: what is filled to `share`, and the track that is left.

    >>> bar(0.5, 5), bar(None, 3), bar(1.0, 3)
    (('━━╸', '──'), ('', '───'), ('━━━', ''))
    """
    halves = 0 if share is None else round(min(1.0, max(0.0, share)) * width * 2)
    whole, rest = divmod(halves, 2)
    return "━" * whole + "╸" * rest, "─" * (width - whole - rest)


BLOCKS = " ▁▂▃▄▅▆▇█"

ChartPart = Literal["line", "fill", "zero", "mark", "cursor", "empty"]
"""What a cell of the chart belongs to; TCSS gives each its colour."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One cell of the chart."""

    glyph: str
    part: ChartPart


EMPTY = Piece(" ", "empty")


def piece(
    value: float | None, top: float, row: int, rows: int, marked: bool, low: float | None = None
) -> Piece:
    """The cell of a column at `row`, counted from the bottom.

    From `low` up to `value` the column is shaded: it had every figure between the two.

    >>> [piece(0.5, 1.0, row, 3, False).glyph for row in range(3)]
    ['█', '▄', ' ']
    >>> piece(0.0, 1.0, 0, 3, False), piece(None, 1.0, 0, 3, False)
    (Piece(glyph='▁', part='zero'), Piece(glyph=' ', part='empty'))
    >>> "".join(piece(0.9, 1.0, row, 5, False, low=0.2).glyph for row in range(5))
    '█▒▒▒▄'
    """
    level = _level(value, top, rows)
    if value is not None and level <= 0 and row == 0:
        return Piece("▁", "line" if value > 0 else "zero")
    eighths = min(8, level - row * 8)
    if eighths <= 0:
        return Piece("┊", "mark") if marked else EMPTY
    if low is not None and eighths == 8 and _level(low, top, rows) < row * 8 + 4 < level - 4:
        return Piece("▒", "line")
    return Piece(BLOCKS[eighths], "line" if level <= (row + 1) * 8 else "fill")


def _level(value: float | None, top: float, rows: int) -> int:
    """How high a column is, in eighths of a cell."""
    return 0 if value is None else min(rows * 8, round(value / top * rows * 8))


def line(
    values: Sequence[float | None],
    top: float,
    row: int,
    rows: int,
    marked: frozenset[int],
    *,
    lows: Sequence[float | None] = (),
    cursor: int | None = None,
) -> list[tuple[str, ChartPart]]:
    """A row of the chart as runs of one part.

    >>> line([1.0, 1.0, None], 1.0, 0, 1, frozenset())
    [('██', 'line'), (' ', 'empty')]
    >>> line([1.0, None, None], 1.0, 0, 1, frozenset(), cursor=1)
    [('█', 'line'), ('│', 'cursor'), (' ', 'empty')]
    """
    runs: list[tuple[str, ChartPart]] = []
    for column, value in enumerate(values):
        low = lows[column] if column < len(lows) else None
        cell = piece(value, top, row, rows, column in marked, low)
        if column == cursor and cell.part in ("mark", "empty"):
            cell = Piece("│", "cursor")
        if runs and runs[-1][1] == cell.part:
            runs[-1] = (runs[-1][0] + cell.glyph, cell.part)
        else:
            runs.append((cell.glyph, cell.part))
    return runs


def axis(
    width: int, start: str, marks: Sequence[tuple[int, str]], cursor: tuple[int, str] | None = None
) -> str:
    """The time axis: where it begins, what changed where, and the moment that is looked at.

    A label stands right of its mark, left of it at the edge, and not at all where that leaves no
    room: the moment's comes first, then the beginning's.

    >>> axis(24, "12:00:00", [(14, "k3")])
    '─12:00:00 ────▴k3───────'
    >>> axis(12, "12:00:00", [(2, "target"), (5, "k3"), (11, "k4")])
    '──▴──▴k3─k4▴'
    >>> axis(24, "12:00:00", [(3, "k3")], cursor=(14, "12:01"))
    '───▴k3────────▲12:01────'
    >>> axis(24, "12:00:00", [], cursor=(3, "12:00:10"))
    '───▲12:00:10────────────'
    >>> axis(24, "12:00:00", [(12, "target")], cursor=(13, "12:00:10"))
    '─12:00:00 ──▴▲12:00:10──'
    """
    text = ["─"] * width
    known = [(column, label) for column, label in marks if 0 <= column < width]
    for column, _ in known:
        text[column] = "▴"
    if cursor is not None and 0 <= cursor[0] < width:
        column, label = cursor
        first = column + 1 if column + 1 + len(label) <= width else column - len(label)
        if first >= 0:
            text[first : first + len(label)] = label
        text[column] = "▲"
    beginning = f"{start} "
    if start and _is_free(text, 0, len(beginning) + 2):
        text[1 : len(beginning) + 1] = beginning
    for number, (column, label) in enumerate(known):
        if text[column] != "▴":
            continue
        is_last = number == len(known) - 1
        if _is_free(text, column + 1, len(label)):
            text[column + 1 : column + 1 + len(label)] = label
        elif is_last and _is_free(text, column - len(label) - 1, len(label) + 1):
            text[column - len(label) : column] = label
    return "".join(text)


def _is_free(text: Sequence[str], first: int, count: int) -> bool:
    """Whether nothing stands on so many columns of an axis."""
    return 0 <= first <= len(text) - count and set(text[first : first + count]) <= {"─"}


WhiskerPart = Literal["bar", "interval", "empty"]


def whisker(
    value: float | None, low: float | None, high: float | None, top: float, width: int
) -> list[tuple[str, WhiskerPart]]:
    """A bar of `width` cells up to `value` of `top`, its interval over its end.

    >>> "".join(text for text, _ in whisker(50.0, 30.0, 70.0, 100.0, 10))
    '━━━├─┼─┤  '
    >>> "".join(text for text, _ in whisker(50.0, None, None, 100.0, 10))
    '━━━━━     '
    >>> whisker(None, None, None, 100.0, 3)
    [('   ', 'empty')]
    """
    if value is None or top <= 0 or width <= 0:
        return [(" " * max(0, width), "empty")]
    end = _cell(value, top, width)
    if low is None or high is None:
        return _runs("━" * end, "", width)
    end = min(end, width - 1)
    first = min(end, _cell(low, top, width))
    last = min(width - 1, max(end, _cell(high, top, width)))
    if last - first < 2:
        return _runs("━" * first, "┃" if last > first else "", width)
    inside = ["─"] * (last - first + 1)
    inside[end - first] = "┼"
    inside[0], inside[-1] = "├", "┤"
    return _runs("━" * first, "".join(inside), width)


def _cell(value: float, top: float, width: int) -> int:
    return min(width, max(0, round(value / top * width)))


def _runs(bar: str, interval: str, width: int) -> list[tuple[str, WhiskerPart]]:
    parts: list[tuple[str, WhiskerPart]] = [(bar, "bar"), (interval, "interval")]
    rest = " " * (width - len(bar) - len(interval))
    return [run for run in (*parts, (rest, "empty")) if run[0]]


def first_shown(total: int, width: int) -> int:
    """The sample in the leftmost column, of `total` samples on `width` columns.

    A full chart jumps left by a quarter of its width: between two jumps only one
    column changes.

    >>> [first_shown(total, 40) for total in (0, 40, 41, 50, 51)]
    [0, 0, 10, 10, 20]
    """
    if width <= 0 or total <= width:
        return 0
    jump = max(1, width // 4)
    return -(-(total - width) // jump) * jump


@dataclass(frozen=True, slots=True)
class Series:
    """What a chart shows."""

    values: tuple[float | None, ...] = ()
    """The latest ones; None breaks the line."""
    total: int = 0
    """Values so far, those included that are no longer kept."""
    latest: Cell = BLANK
    marks: tuple[tuple[int, str], ...] = ()
    """Where something changed, counted like `total`, and what."""
    times: tuple[float, ...] = ()
    """Unix time of each value."""
    lows: tuple[float | None, ...] = ()
    """The lowest figure of each column whose highest is its value; empty for single figures."""
    cursor: int | None = None
    """The column of the moment that is looked at, counted like `total`; None for now."""
    moment: str = ""
    """That moment, as the time axis names it."""

    def window(self, width: int) -> tuple[int, tuple[float | None, ...]]:
        """The index of the leftmost column, and the values from there on."""
        first = max(first_shown(self.total, width), self.total - len(self.values))
        return first, self.values[len(self.values) - (self.total - first) :]

    def lows_from(self, first: int) -> tuple[float | None, ...]:
        """The lowest figures from the leftmost column on."""
        return self.lows[len(self.lows) - (self.total - first) :] if self.lows else ()


EMPTY_SERIES = Series()
"""Before the first reading."""


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One k: a bar with its interval, and figures beside it."""

    label: Cell
    value: float | None
    low: float | None
    high: float | None
    expected: bool
    """Whether the bar is a forecast, or an old measurement where there is none."""
    right: tuple[Cells, ...]
    """The figures, the most of them first."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Speed over k; empty before anything is known."""

    title: Row = NOTHING
    head: tuple[Cells, ...] = ()
    rows: tuple[CurveRow, ...] = ()
    top: float = 1.0
    note: Row = NOTHING
    focus: int = 0
    """The row that is shown where not all of them fit."""
