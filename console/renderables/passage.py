"""Running text in cells, broken at the edge: code is not to be reflowed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len

from specdeck.console.view.cell import Cell, Line


def passage(cells: Iterable[Cell], width: int) -> list[Line]:
    """The lines that the text makes in `width` cells.

    >>> [[cell.text for cell in line] for line in passage((Cell("ab\\ncde"), Cell("f", "bad")), 2)]
    [['ab'], ['cd'], ['e', 'f']]
    """
    lines: list[list[Cell]] = [[]]
    room = width
    for cell in cells:
        for number, part in enumerate(cell.text.expandtabs(4).split("\n")):
            if number:
                lines.append([])
                room = width
            for piece, fresh in _pieces(part, room, width):
                if fresh:
                    lines.append([])
                    room = width
                lines[-1].append(Cell(piece, cell.tone))
                room -= cell_len(piece)
    return [tuple(line) for line in lines]


def _pieces(text: str, room: int, width: int) -> Iterable[tuple[str, bool]]:
    """`text` cut to fit, and whether each piece begins a line."""
    piece, fresh = "", False
    for character in text:
        shown = character if character.isprintable() else "·"
        length = cell_len(shown)
        if length > room:
            if piece:
                yield piece, fresh
            piece, fresh, room = "", True, width
        piece += shown
        room -= length
    if piece:
        yield piece, fresh
