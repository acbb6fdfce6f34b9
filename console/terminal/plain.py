"""What is drawn for a terminal that lacks characters or colours: each cell stays a cell."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_ASCII: Final = {
    **dict.fromkeys("─╌┄┈▔‐‑–—−╴╶", "-"),
    **dict.fromkeys("━═╸╺", "="),
    **dict.fromkeys("│┃┊┆╎║▏▕╵╷╹╻", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝╠╣╦╩╬", "+"),
    **dict.fromkeys("▁▂", "_"),
    **dict.fromkeys("▃▄", "."),
    **dict.fromkeys("▅▆", "o"),
    **dict.fromkeys("▇█▉▊▋▌▍▎▐▀▓▒░", "#"),
    **dict.fromkeys("→▸▶►⏵", ">"),
    **dict.fromkeys("←◂◀◄⏴", "<"),
    **dict.fromkeys("↑▲▴⏶", "^"),
    **dict.fromkeys("↓▼▾⏷", "v"),
    **dict.fromkeys("●•◆■✓✔", "*"),
    **dict.fromkeys("○◇□", "o"),
    "…": "~", "·": ".", "×": "x", "≠": "!", "≈": "~", "≤": "<", "≥": ">", "±": "+", "µ": "u",
    "‘": "'", "’": "'", "“": '"', "”": '"', "✗": "x", "✘": "x",
}  # fmt: skip
"""One character for each: what is drawn keeps its columns."""


@lru_cache(maxsize=4096)
def as_ascii(text: str) -> str:
    """`text` in ASCII, as many cells wide; what has no likeness is a question mark for each cell.

    >>> as_ascii("k 5 → 3 · 62 %…"), as_ascii("╭─╮│█▁"), as_ascii("é世")
    ('k 5 > 3 . 62 %~', '+-+|#_', 'e??')
    """
    return text if text.isascii() else "".join(map(_likeness, text))


def _likeness(character: str) -> str:
    if character.isascii():
        return character
    found = _ASCII.get(character)
    if found is None:
        found = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    width = cell_len(character)
    return found if len(found) == width else "?" * width


class AsciiText(LineFilter):
    """Draws ASCII alone, for terminals and fonts without lines and blocks."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments of a line, cell for cell."""
        if all(one.text.isascii() for one in segments):
            return segments
        return [one if one.control else Segment(as_ascii(one.text), one.style) for one in segments]


_DEFAULT: Final = Style.from_color(RichColor.default(), RichColor.default())
_REVERSE: Final = Style(reverse=True)


class WithoutColour(LineFilter):
    """Draws without any colour (https://no-color.org), and says by other means what one said.

    Bold stays bold. What stands on a background of its own, such as the line under the cursor,
    is reversed.
    """

    def __init__(self, plain: Callable[[], Collection[str]]) -> None:
        """`plain` are the backgrounds that mean nothing, as `#rrggbb`."""
        super().__init__()
        self._plain = plain

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments of a line in the terminal's own colours."""
        plain = {*self._plain(), background.hex6.lower()}
        return [
            one
            if one.control or one.style is None
            else Segment(one.text, self._without(one.style, plain))
            for one in segments
        ]

    def _without(self, style: Style, plain: Collection[str]) -> Style:
        own = style.bgcolor
        stands_out = own is not None and own.triplet is not None and own.triplet.hex not in plain
        bare = style + _DEFAULT
        return bare + _REVERSE if stands_out else bare
