"""A row of cells to a strip."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from specdeck.console.view.cell import Cell, Line, Row, Tone
from specdeck.console.view.words import printable

StyleOf = Callable[[Tone], Style]
"""What a tone looks like in the widget that draws."""


def row(value: Row, width: int, style_of: StyleOf) -> Strip:
    """The row in `width` cells; the left part is cut short before the right part is.

    Where the row has shorter right parts, the first that leaves the left one whole is taken.
    """
    right, used = _segments(_right(value, width), width, style_of)
    left, room = _segments(value.left, max(0, width - used - bool(used)), style_of)
    gap = width - used - room
    fill = Segment(value.fill * gap, style_of("rule" if value.fill != " " else "plain"))
    return Strip([*left, fill, *right] if gap else [*left, *right], width)


def _right(value: Row, width: int) -> Line:
    room = width - _length(value.left) - 1
    choices = (value.right, *value.shorter)
    return next((line for line in choices if _length(line) <= room), choices[-1])


def _length(line: Line) -> int:
    return sum(cell_len(cell.text) for cell in line)


def wrapped(rows: Iterable[Row], width: int) -> list[Row]:
    """The rows with the last cell of each wrapped below itself.

    >>> lines = wrapped([Row((Cell("12:00 "), Cell("k went to 3")))], 15)
    >>> ["".join(cell.text for cell in line.left) for line in lines]
    ['12:00 k went', '      to 3']
    """
    lines: list[Row] = []
    for value in rows:
        *before, last = value.left or (Cell(""),)
        indent = sum(cell_len(cell.text) for cell in before)
        parts = textwrap.wrap(last.text, max(8, width - indent - 1)) or [last.text]
        for number, part in enumerate(parts):
            start = before if number == 0 else [Cell(" " * indent)]
            lines.append(Row((*start, replace(last, text=part))))
    return lines


def _segments(line: Line, width: int, style_of: StyleOf) -> tuple[list[Segment], int]:
    segments: list[Segment] = []
    used = 0
    for cell in line:
        # The last gate before the terminal: names and reasons come from elsewhere.
        cell = replace(cell, text=printable(cell.text)) if not cell.text.isprintable() else cell
        style = style_of(cell.tone)
        if cell.action is not None:
            style += Style.from_meta({"@click": cell.action})
        length = cell_len(cell.text)
        if used + length <= width:
            segments.append(Segment(cell.text, style))
            used += length
            continue
        if width - used > 0:
            segments.append(Segment(set_cell_size(cell.text, width - used - 1) + "…", style))
        return segments, width
    return segments, used
