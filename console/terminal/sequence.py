"""Where a sequence that a terminal sends has its end, as ECMA-48 and xterm have it."""

from __future__ import annotations

import re
from typing import Final, Literal

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

ESCAPE: Final = "\x1b"
INTRODUCERS: Final = frozenset("[O]PX^_")
"""What after an escape begins a sequence; each of the others is a key, or alt with it."""
LONGEST: Final = 32
"""Characters of a sequence that means anything; of a longer one only the end is looked for."""
_STRINGS: Final = frozenset("]PX^_")
"""OSC, DCS, SOS, PM, APC: answers of the terminal, which an escape and a backslash may end."""
_BELL: Final = "\x07"
_MORE: Final = {"\x1b[M": 3, "\x1b[[": 1}
"""Characters after what looks like an end: an old mouse report, a function key of Linux."""
_REST: Final = re.compile(r"\[[0-9;<=>?]|\[[A-FHIMO-SZ]|O[A-DFHMP-Sa-y]|\][0-9]")

Part = Literal["open", "whole", "broken"]


class OpenSequence:
    """A sequence of which more is to come, however late: half of one is no keys.

    >>> mouse = OpenSequence("[")
    >>> [mouse.add(one) for one in "<35;4"], [mouse.add(one) for one in "2;17M"][-1], mouse.text
    (['open', 'open', 'open', 'open', 'open'], 'whole', '\\x1b[<35;42;17M')
    >>> OpenSequence("[").add("\\r")
    'broken'
    """

    def __init__(self, introducer: str) -> None:
        """`introducer` is the character after the escape."""
        self.is_string = introducer in _STRINGS
        """Whether it is text up to a mark, and means nothing here."""
        self.text = ESCAPE + introducer
        """What came, where it is not too long for a sequence that means anything."""
        self.is_too_long = False
        self._left = 0

    @property
    def means_nothing(self) -> bool:
        """Whether it is only to be passed over."""
        return self.is_string or self.is_too_long or self.text.startswith("\x1b[M")

    def add(self, character: str) -> Part:
        """What it is with one more character, which is no escape; `broken`: not part of it."""
        if self._left and character >= " ":
            self._keep(character)
            self._left -= 1
            return "open" if self._left else "whole"
        if self.is_string:
            if character == _BELL:
                return "whole"
            return "open" if character >= " " else "broken"
        if not " " <= character <= "~":
            return "broken"
        self._keep(character)
        if not self.is_too_long and (more := _MORE.get(self.text)):
            self._left = more
            return "open"
        is_end = character >= "@" or self.text in ANSI_SEQUENCES_KEYS
        return "whole" if is_end else "open"

    def _keep(self, character: str) -> None:
        if len(self.text) < LONGEST:
            self.text += character
        else:
            self.is_too_long = True


def begins_with_rest(text: str) -> bool:
    """Whether one read after a lone escape is what the escape had begun, and nothing typed.

    >>> begins_with_rest("[6~"), begins_with_rest("["), begins_with_rest("[[")
    (True, False, False)
    """
    return _REST.match(text) is not None
