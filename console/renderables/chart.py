"""A chart in block elements: one column for each sample, drawn from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

BLOCKS = " ▁▂▃▄▅▆▇█"

Part = Literal["line", "fill", "zero", "mark", "empty"]
"""What a cell of the chart belongs to; TCSS gives each its colour."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One cell of the chart."""

    glyph: str
    part: Part


EMPTY = Piece(" ", "empty")


def piece(value: float | None, top: float, row: int, rows: int, marked: bool) -> Piece:
    """The cell of a column at `row`, counted from the bottom.

    >>> [piece(0.5, 1.0, row, 3, False).glyph for row in range(3)]
    ['█', '▄', ' ']
    >>> piece(0.0, 1.0, 0, 3, False), piece(None, 1.0, 0, 3, False)
    (Piece(glyph='▁', part='zero'), Piece(glyph=' ', part='empty'))
    """
    level = 0 if value is None else min(rows * 8, round(value / top * rows * 8))
    if value is not None and level <= 0 and row == 0:
        return Piece("▁", "line" if value > 0 else "zero")
    eighths = min(8, level - row * 8)
    if eighths <= 0:
        return Piece("┊", "mark") if marked else EMPTY
    return Piece(BLOCKS[eighths], "line" if level <= (row + 1) * 8 else "fill")


def line(
    values: Sequence[float | None], top: float, row: int, rows: int, marked: frozenset[int]
) -> list[tuple[str, Part]]:
    """A row of the chart as runs of one part.

    >>> line([1.0, 1.0, None], 1.0, 0, 1, frozenset())
    [('██', 'line'), (' ', 'empty')]
    """
    runs: list[tuple[str, Part]] = []
    for column, value in enumerate(values):
        cell = piece(value, top, row, rows, column in marked)
        if runs and runs[-1][1] == cell.part:
            runs[-1] = (runs[-1][0] + cell.glyph, cell.part)
        else:
            runs.append((cell.glyph, cell.part))
    return runs


def axis(width: int, start: str, marks: Sequence[tuple[int, str]]) -> str:
    """The time axis: where it begins, and what changed where.

    A label stands right of its mark, left of it at the edge, and not at all where the
    next mark leaves no room.

    >>> axis(24, "12:00:00", [(14, "k3")])
    '─12:00:00 ────▴k3───────'
    >>> axis(12, "12:00:00", [(2, "target"), (5, "k3"), (11, "k4")])
    '──▴──▴k3─k4▴'
    """
    places = [column for column, _ in marks]
    text = ["─"] * width
    free = min([*places, width])
    if start and free > len(start) + 2:
        text[1 : len(start) + 2] = f"{start} "
    for index, (column, label) in enumerate(marks):
        if not 0 <= column < width:
            continue
        text[column] = "▴"
        after = places[index + 1] if index + 1 < len(places) else width
        before = "".join(text[max(0, column - len(label) - 1) : column])
        if column + len(label) < after:
            text[column + 1 : column + 1 + len(label)] = label
        elif after == width and before == "─" * (len(label) + 1):
            text[column - len(label) : column] = label
    return "".join(text)
