"""What a terminal sends, as Textual's messages; what means nothing is left out.

A key of another character set, a paste of a binary file or half an answer of the terminal's own
are no defects of the console, and must not end it. A line may hold anything up at any place for
seconds: what it tears is one thing still, and never keys that nobody pressed.
"""

from __future__ import annotations

import time
from codecs import getincrementaldecoder, register_error
from collections.abc import Callable, Collection, Iterator
from typing import Final

from textual import constants
from textual._xterm_parser import XTermParser
from textual.events import Key, Paste, Resize
from textual.message import Message

from specdeck.console.terminal.paste import (
    CTRL_C,
    PASTE_BEGIN,
    OpenPaste,
    PasteDropped,
    PasteStalled,
    find_way,
)
from specdeck.console.terminal.sequence import (
    CONTROLS,
    ESCAPE,
    INTRODUCERS,
    Introduced,
    OpenSequence,
    is_late_rest,
    judge_after_escape,
)

_C1: Final = "specdeck.c1"
"""How bytes are decoded that are no UTF-8."""
_NO_SEQUENCE: Final = (ValueError, ArithmeticError, LookupError)
"""What Textual's parser raises on sequences that mean nothing."""
LONGEST_PASTE: Final = 1_000_000
"""Characters; what comes after so many is left out, up to the end: it is no keys."""
PASTE_SILENCE_S: Final = 5.0
"""With nothing pasted for so long, a paste may have lost its end, and a key alone leaves it."""
INTERRUPTS: Final = 2
"""As often Ctrl-C alone leaves a paste before that, and is heard. Who pastes it has more around."""
SEQUENCE_SILENCE_S: Final = 5.0
"""Without a byte for so long, a sequence that is open has lost its end, or was typed."""
REST_S: Final = 0.5
"""What comes after that silence without a longer one in it is its rest. Also what may have begun
one right after the escape key, such as `[`, is held for so long: it is a key then."""


class TerminalInput:
    """Reads bytes as Textual's parser does, which raises on some of them, and takes none for late.

    A terminal sends the escape key and a key after it as it sends alt with that key. They differ
    by the time between them, which a slow machine or line does not keep. So it is two keys,
    unless it is one of `alt_keys`, such as `alt+x`.

    A sequence is given to Textual's parser whole, as that one takes for keys what stays open for
    a tenth of a second. Only an escape alone is a key then.

    >>> [str(one.key) for one in TerminalInput().feed(b"q\\xe9k")]
    ['q', 'replacement_character', 'k']
    >>> [str(one.key) for one in TerminalInput().feed(b"\\x1b?")]
    ['escape', 'question_mark']
    """

    def __init__(
        self, alt_keys: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._decode = getincrementaldecoder("utf-8")(_C1).decode
        self._parser = XTermParser()
        self._alt_keys = alt_keys
        self._has_escape = False
        """Whether an escape was read last."""
        self._ends_string = False
        """Whether the escape that was read last may be the first half of a string's end."""
        self._escaped_at: float | None = None
        """When an escape alone was taken for the key, if nothing but `_held` came since."""
        self._held = ""
        """What came since, of which it takes more to tell whether it is typed."""
        self._late: Introduced | None = None
        """What was given up last, if nothing came since: its rest may come still."""
        self._open: OpenSequence | None = None
        self._opens_now = False
        """Whether it was begun in what is being read."""
        self._given_up_at: float | None = None
        """When the open sequence was found to be silent for too long."""
        self._paste: OpenPaste | None = None
        self._stalled_at: float | None = None
        """When the open paste was last found to be silent for too long."""
        self._pasted_at = 0.0
        """When something was read that shows that the paste goes on."""
        self._is_leaving = False
        """Whether a key to leave the paste by was read last, of which more may come."""
        self._interrupts = 0
        """How often Ctrl-C came since something was pasted."""
        self._clock = clock
        self._last_fed = clock()

    @property
    def may_be_pasting(self) -> bool:
        """Whether what comes next is pasted, and no keys, or may turn out to be."""
        if self._paste is not None or self._has_escape or self._held:
            return True
        return self._open is not None and PASTE_BEGIN.startswith(self._open.text)

    def feed(self, data: bytes) -> Iterator[Message]:
        """What `data`, one read, says; what it leaves open waits for the next."""
        self._last_fed = self._clock()
        self._opens_now = False
        text = self._decode(data)
        if self._paste is not None:
            self._look_for_way(text)
        elif text:
            text = self._take_up(text)
        for character in text:
            yield from self._read(character)
        self._last_fed = self._clock()  # whoever takes this may take its time

    def tick(self) -> Iterator[Message]:
        """What the silence until now says, such as of the escape key alone.

        To be called ten times a second while nothing is there to be read.
        """
        now = self._clock()
        quiet_s = now - self._last_fed
        if self._paste is not None:
            yield from self._look_at_paste(now, quiet_s)
        elif self._has_escape:
            if quiet_s >= constants.ESCAPE_DELAY:
                self._has_escape = False
                if not self._ends_string:  # else it is half an end, or pressed to leave it
                    self._escaped_at = now
                    yield _make_escape()
        elif self._held:
            if quiet_s > REST_S:
                yield from self._give_up_held(now)
        elif self._open is not None:
            self._give_up(now, quiet_s)

    def _take_up(self, text: str) -> str:
        """What is to be read of one read, after what the line may have torn it from."""
        now, late, self._late = self._last_fed, self._late, None
        if late is not None and now - late.at <= SEQUENCE_SILENCE_S and is_late_rest(late, text):
            self._open, self._given_up_at = OpenSequence(late.introducer), late.at
            return text
        if self._escaped_at is None:
            return text
        text, was_held, self._held = self._held + text, bool(self._held), ""
        is_late = now - self._escaped_at > SEQUENCE_SILENCE_S and not was_held
        found = "typed" if is_late else judge_after_escape(text)
        if found == "open":
            self._held = text
            return ""
        self._escaped_at = None
        self._has_escape = found == "rest"
        return text

    def _give_up_held(self, now: float) -> Iterator[Message]:
        """Takes for a key what would have begun a sequence; what came behind it may be its rest."""
        introducer, self._held, self._escaped_at = self._held[0], "", None
        self._late = Introduced(introducer, now)
        yield from self._parse(introducer)

    def _give_up(self, now: float, quiet_s: float) -> None:
        """After a long silence the rest is still passed over, if it comes in one go."""
        if self._given_up_at is None:
            if quiet_s > SEQUENCE_SILENCE_S:
                self._given_up_at = now
        elif self._last_fed > self._given_up_at and quiet_s > REST_S and self._open is not None:
            self._late, self._open = Introduced(self._open.introducer, now), None

    def _read(self, character: str) -> Iterator[Message]:
        if self._paste is not None:
            yield from self._add_to_paste(self._paste, character)
        elif character in CONTROLS:
            for one in CONTROLS[character]:
                yield from self._read(one)
        elif character == ESCAPE:
            if self._has_escape:
                yield _make_escape()
            self._has_escape = True
            self._ends_string = self._open is not None and self._open.is_string
            self._open = None
        elif self._ends_string and character == "\\":
            self._has_escape = self._ends_string = False
        elif self._has_escape:
            self._has_escape = self._ends_string = False
            yield from self._read_after_escape(character)
        elif self._open is not None:
            yield from self._add_to_sequence(self._open, character)
        else:
            self._ends_string = False
            yield from self._parse(character)

    def _read_after_escape(self, character: str) -> Iterator[Message]:
        if character in INTRODUCERS:
            self._open, self._given_up_at = OpenSequence(character), None
            self._opens_now = True
        elif f"alt+{character}" in self._alt_keys:
            yield Key(f"alt+{character}", character)
        else:
            yield _make_escape()
            yield from self._parse(character)

    def _add_to_sequence(self, sequence: OpenSequence, character: str) -> Iterator[Message]:
        part = sequence.add(character, is_late=not self._opens_now)
        if part == "open":
            return
        self._open = None
        if part == "broken":  # the key that was pressed then, such as Ctrl-C or enter
            yield from self._parse(character)
        elif sequence.text == PASTE_BEGIN:
            self._begin_paste()
        elif self._given_up_at is None and not sequence.means_nothing:
            yield from self._parse(sequence.text)

    def _add_to_paste(self, paste: OpenPaste, character: str) -> Iterator[Message]:
        was_full = paste.is_full
        if paste.add(character):
            self._paste = None
            if not was_full:
                yield Paste(paste.text)
        elif paste.is_full and not was_full:
            yield Paste(paste.text)

    @property
    def _is_stalled(self) -> bool:
        return self._stalled_at is not None and self._stalled_at >= self._pasted_at

    def _begin_paste(self) -> None:
        self._paste, self._pasted_at = OpenPaste(LONGEST_PASTE), self._clock()
        self._stalled_at, self._is_leaving, self._interrupts = None, False, 0

    def _look_for_way(self, text: str) -> None:
        """Takes note of whether one read is pasted, or a key that is to leave the paste."""
        way, now = find_way(text), self._clock()
        if way.is_pasted:
            self._pasted_at, self._is_leaving, self._interrupts = now, False, 0
        elif way.is_leaving:
            self._is_leaving = self._stalled_at is not None
            # Right behind what is pasted it may be pasted itself.
            if self._interrupts or now - self._pasted_at >= constants.ESCAPE_DELAY:
                self._interrupts += way.interrupts

    def _look_at_paste(self, now: float, quiet_s: float) -> Iterator[Message]:
        """A line that holds a paste up for minutes is no end of it: keys would be its rest."""
        if quiet_s >= constants.ESCAPE_DELAY and self._interrupts >= INTERRUPTS:
            self._paste = None
            yield PasteDropped()
            yield from self._parse(CTRL_C)
        elif quiet_s >= constants.ESCAPE_DELAY and self._is_leaving:
            self._paste = None
            self._escaped_at = now  # the escape may have begun the end
            yield PasteDropped()
        elif now - self._pasted_at > PASTE_SILENCE_S and not self._is_stalled:
            self._stalled_at = now
            yield PasteStalled()

    def _parse(self, text: str) -> Iterator[Message]:
        """What a character or a whole sequence means to Textual."""
        is_known = False
        try:
            for message in self._parser.feed(text):
                is_known = True
                if isinstance(message, Resize):
                    self._forget_no_pixels()
                if _makes_sense(message):
                    yield message
        except _NO_SEQUENCE:
            is_known = False
        if not is_known:
            self._begin_anew()

    def _forget_no_pixels(self) -> None:
        """Takes the mouse's places for cells where the terminal knows no size in pixels.

        Textual divides by it.
        """
        pixels = self._parser.terminal_pixel_size
        if pixels is not None and not all(pixels):
            self._parser.terminal_pixel_size, self._parser.mouse_pixels = None, False

    def _begin_anew(self) -> None:
        """Leaves a sequence out: the parser raised and is at its end, or waits for more of it."""
        was, self._parser = self._parser, XTermParser()
        self._parser.mouse_pixels = was.mouse_pixels
        self._parser.terminal_size = was.terminal_size
        self._parser.terminal_pixel_size = was.terminal_pixel_size
        self._parser.last_x, self._parser.last_y = was.last_x, was.last_y


def _keep_c1(error: UnicodeError) -> tuple[str, int]:
    """As `replace` does, but a byte that introduces a sequence in eight bits is that.

    Such a byte is no character's beginning in UTF-8.
    """
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "\x9b" if wrong == b"\x9b" else "\ufffd", error.end


register_error(_C1, _keep_c1)


def _make_escape() -> Key:
    return Key("escape", ESCAPE)


def _makes_sense(message: Message) -> bool:
    """Whether a size that the terminal tells is one at all; the driver gives it its bounds."""
    return not isinstance(message, Resize) or message.size.area > 0
