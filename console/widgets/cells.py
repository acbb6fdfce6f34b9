"""What a view hands to a widget: text and a tone, never a colour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

Tone = Literal["plain", "muted", "strong", "accent", "good", "warn", "bad", "key", "rule", "past"]
"""What a piece of text means; TCSS owns what a tone looks like."""

TONES: tuple[Tone, ...] = get_args(Tone)


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text and what it means."""

    text: str
    tone: Tone = "plain"
    action: str | None = None
    """Run when the text is clicked; None for text that does nothing."""


Cells = tuple[Cell, ...]

BLANK = Cell("–", "muted")
"""Not known; never to be mistaken for zero."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a panel: the right part keeps its place, the left part gives way."""

    left: Cells = ()
    right: Cells = ()
    fill: str = " "
    """What stands between the two, in the muted tone."""
    shorter: tuple[Cells, ...] = ()
    """What the right part may be instead where it would cut the left one, the longest first."""
    kept: int | None = None
    """Cells of the left part that a right part has to leave whole; None for all of them."""


NOTHING = Row()
"""A row without words; the widget that shows it gives its place back."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A labelled share."""

    label: str
    share: float | None
    """0 to 1; None is not known."""
    text: str
    tone: Tone = "plain"


def fact(label: str, *value: Cell) -> Row:
    """A name and its value.

    >>> fact("KV cache", Cell("12 %")).left
    (Cell(text='KV cache', tone='muted', action=None),)
    """
    return Row((Cell(label, "muted"),), value)


def heading(text: str, *value: Cell) -> Row:
    """A section's name with a rule up to its headline value."""
    left = (Cell(text, "strong"), Cell(" "))
    return Row(left, (Cell(" "), *value) if value else (), "─")


def beyond(top: int, shown: int, total: int) -> Cells:
    """How many lines of a list stand above and below those that are shown; nothing for none.

    >>> [cell.text for cell in beyond(3, 10, 25)], beyond(0, 10, 10)
    (['↑ 3', ' ', '↓ 12 more lines'], ())
    >>> beyond(0, 10, 11)[0].text
    '↓ 1 more line'
    """
    above, below = max(0, top), max(0, total - top - shown)
    lines = "more line" if below == 1 else "more lines"
    cells = (
        Cell(f"↑ {above}", "accent") if above else None,
        Cell(f"↓ {below} {lines}", "accent") if below else None,
    )
    known = [cell for cell in cells if cell is not None]
    return (known[0], Cell(" "), known[1]) if len(known) == 2 else tuple(known)


def fade(line: Cells) -> Cells:
    """The same words, muted: figures of an engine that no longer answers.

    >>> fade((Cell("512", "good"),))
    (Cell(text='512', tone='muted', action=None),)
    """
    return tuple(replace(cell, tone="muted") for cell in line)


def fade_row(row: Row) -> Row:
    """A row whose two parts are muted."""
    return Row(fade(row.left), fade(row.right), row.fill, tuple(map(fade, row.shorter)))


def join_cells(cells: tuple[Cell, ...], between: str = " · ") -> Cells:
    """The cells with a muted separator between them.

    >>> "".join(cell.text for cell in join_cells((Cell("a"), Cell("b"))))
    'a · b'
    """
    line: list[Cell] = []
    for cell in cells:
        line += [Cell(between, "muted"), cell] if line else [cell]
    return tuple(line)
