"""What a terminal sends, as Textual's messages; what means nothing is left out.

A key of another character set, a paste of a binary file or half an answer of the terminal's own
are no defects of the console, and must not end it.
"""

from __future__ import annotations

import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Iterator
from typing import Final

from textual._xterm_parser import XTermParser
from textual.events import Key, Paste, Resize
from textual.message import Message

_ESCAPE: Final = "\x1b"
_BEGINS_SEQUENCE: Final = frozenset("\x1b[]OPX^_\\")
"""What may follow an escape in a sequence, or ends one of the terminal's own answers."""
_PASTE: Final = {"\x1b[200~": True, "\x1b[201~": False}
_LONGEST_KEPT: Final = 32
_NO_SEQUENCE: Final = (ValueError, ArithmeticError, LookupError)
"""What Textual's parser raises on sequences that mean nothing."""
_PASTE_END: Final = "\x1b[201~"
LONGEST_PASTE: Final = 1_000_000
"""Characters; what comes after so many is left out, up to the end or a silence: it is no keys."""
PASTE_SILENCE_S: Final = 5.0
"""Without a byte for so long, a paste that is open has lost its end."""


class TerminalInput:
    """Reads bytes as Textual's parser does, which raises on some of them.

    A terminal sends the escape key and a key after it as it sends alt with that key. They differ
    by the time between them, which a slow machine or line does not keep. So it is two keys,
    unless it is one of `alt_keys`, such as `alt+x`.

    >>> [str(one.key) for one in TerminalInput().feed(b"q\\xe9k")]
    ['q', 'replacement_character', 'k']
    >>> [str(one.key) for one in TerminalInput().feed(b"\\x1b?")]
    ['escape', 'question_mark']
    """

    def __init__(
        self, alt_keys: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()
        self._alt_keys = alt_keys
        self._open = ""
        """What was read from the last escape on, while it may be a sequence."""
        self._is_pasting = False
        self._pasted = 0
        self._drops = False
        """Whether the rest of a paste that is too long is left out."""
        self._clock = clock
        self._last_fed = clock()

    @property
    def is_pasting(self) -> bool:
        """Whether what comes next is pasted, and no keys."""
        return self._is_pasting

    def feed(self, data: bytes) -> Iterator[Message]:
        """What `data` says; what it leaves open waits for the next."""
        self._last_fed = self._clock()
        for character in self._decode(data):
            if self._drops:
                self._follow(character)
                self._drops = self._is_pasting
                continue
            if self._is_key_after_escape(character):
                yield from self._end_with_escape()
            self._follow(character)
            yield from self._parse(character)
            if self._is_pasting:
                self._pasted += 1
                if self._pasted > LONGEST_PASTE:
                    yield from self._end_paste()
                    self._is_pasting = self._drops = True
        self._last_fed = self._clock()  # whoever takes this may take its time

    def tick(self) -> Iterator[Message]:
        """What was open for too long, such as the escape key alone; called ten times a second."""
        if self._is_pasting and self._clock() - self._last_fed > PASTE_SILENCE_S:
            if self._drops:
                self._is_pasting = self._drops = False
                self._open = ""
            else:
                yield from self._end_paste()
            return
        try:
            found = [*filter(_makes_sense, self._parser.tick())]
        except _NO_SEQUENCE:
            self._begin_anew()
            return
        left = self._open[1:]
        if not found or self._is_pasting:
            yield from found
        elif left and all(isinstance(one, Key) for one in found):
            # A sequence that never came to its end was keys.
            yield from self._end_with_escape()
            for character in left:
                yield from self._parse(character)
        else:
            self._open = ""
            yield from found

    def _parse(self, character: str) -> Iterator[Message]:
        try:
            for message in self._parser.feed(character):
                if character != _ESCAPE:
                    self._open = ""
                if isinstance(message, Resize):
                    self._forget_no_pixels()
                if _makes_sense(message):
                    yield message
        except _NO_SEQUENCE:
            self._begin_anew()

    def _is_key_after_escape(self, character: str) -> bool:
        if self._open != _ESCAPE or self._is_pasting or character in _BEGINS_SEQUENCE:
            return False
        return f"alt+{character}" not in self._alt_keys

    def _end_with_escape(self) -> Iterator[Message]:
        """The escape key, and a parser that knows of no escape."""
        self._begin_anew()
        yield Key("escape", _ESCAPE)

    def _end_paste(self) -> Iterator[Message]:
        """What came is a paste, and keys count again: its end is lost, or too far away."""
        self._is_pasting, self._open = False, ""
        for character in _PASTE_END:
            # Half a sequence before it would come as keys.
            yield from (one for one in self._parse(character) if isinstance(one, Paste))

    def _follow(self, character: str) -> None:
        """Keeps what was read since the last escape."""
        if character == _ESCAPE:
            self._open = _ESCAPE
        elif self._open:
            self._open += character
            if self._open in _PASTE:
                self._is_pasting, self._open, self._pasted = _PASTE[self._open], "", 0
            elif len(self._open) > _LONGEST_KEPT:
                self._open = ""

    def _forget_no_pixels(self) -> None:
        """Takes the mouse's places for cells where the terminal knows no size in pixels.

        Textual divides by it.
        """
        pixels = self._parser.terminal_pixel_size
        if pixels is not None and not all(pixels):
            self._parser.terminal_pixel_size, self._parser.mouse_pixels = None, False

    def _begin_anew(self) -> None:
        """Leaves a sequence out: the parser that raised is at its end."""
        self._open = ""
        was, self._parser = self._parser, XTermParser()
        self._parser.mouse_pixels = was.mouse_pixels
        self._parser.terminal_size = was.terminal_size
        self._parser.terminal_pixel_size = was.terminal_pixel_size


def _makes_sense(message: Message) -> bool:
    """Whether a size that the terminal tells is one at all; the driver gives it its bounds."""
    return not isinstance(message, Resize) or message.size.area > 0
