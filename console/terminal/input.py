"""What a terminal sends, as Textual's messages; what means nothing is left out.

A key of another character set, a paste of a binary file or half an answer of the terminal's own
are no defects of the console, and must not end it.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator

from textual._xterm_parser import XTermParser
from textual.events import Resize
from textual.message import Message

MOST_CELLS = 1_000_000
"""Of a terminal that says its own size; a wall of screens has a tenth."""


class TerminalInput:
    """Reads bytes as Textual's parser does, which raises on some of them.

    >>> [str(one.key) for one in TerminalInput().feed(b"q\\xe9k")]
    ['q', 'replacement_character', 'k']
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()

    def feed(self, data: bytes) -> Iterator[Message]:
        """What `data` says; what it leaves open waits for the next."""
        for character in self._decode(data):
            try:
                yield from filter(_makes_sense, self._parser.feed(character))
            except (ValueError, OverflowError):
                self._begin_anew()

    def tick(self) -> Iterator[Message]:
        """What was open for too long, such as the escape key alone; called ten times a second."""
        try:
            yield from filter(_makes_sense, self._parser.tick())
        except (ValueError, OverflowError):
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Leaves a sequence out: the parser that raised is at its end."""
        was, self._parser = self._parser, XTermParser()
        self._parser.mouse_pixels = was.mouse_pixels
        self._parser.terminal_size = was.terminal_size
        self._parser.terminal_pixel_size = was.terminal_pixel_size


def _makes_sense(message: Message) -> bool:
    """Whether a size that the terminal tells is one that can be drawn."""
    if not isinstance(message, Resize):
        return True
    return 0 < message.size.area <= MOST_CELLS
