"""Where a sequence that a terminal sends has its end, as ECMA-48 and xterm have it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

ESCAPE: Final = "\x1b"
INTRODUCERS: Final = frozenset("[O]PX^_")
"""What after an escape begins a sequence; each of the others is a key, or alt with it."""
CONTROLS: Final[Mapping[str, str]] = {
    chr(ord(one) + 0x40): ESCAPE + one for one in sorted(INTRODUCERS)
}
"""What an escape and an introducer are as one character, of eight bits."""
LONGEST: Final = 32
"""Characters of a sequence that means anything; of a longer one only the end is looked for."""
_STRINGS: Final = frozenset("]PX^_")
"""OSC, DCS, SOS, PM, APC: answers of the terminal, which an escape and a backslash may end."""
_ENDS: Final = ("\x07", "\x9c")
"""The bell, and an escape and a backslash as one character."""
_LAYOUT: Final = frozenset("\b\t\n\v\f\r")
"""Control characters that a string may hold."""
_MORE: Final = {"\x1b[M": 3, "\x1b[[": 1}
"""Characters after what looks like an end: an old mouse report, a function key of Linux."""
_REST: Final = re.compile(
    r"\[[0-9;<=>?]|\[[A-FHIMO-SZa-d]|\[\[[A-E]|O[0-9]?[A-DFHMP-Sa-y]|\][0-9]+;"
    r"|P(?:[01]?[$+]|[>!]\|)|_G"
)
"""After an escape, what nobody types and terminals send."""
_BEGINNING: Final = re.compile(r"[\[_]|O[0-9]?|\][0-9]{0,4}|P[01>!]?")
"""What may become that, and may be typed."""
_LATE_REST: Final = re.compile(
    r"[<=>?]?[0-9;][0-9;:]*(?:[ -/]*[@-~]|\$\Z)|[<=>?]?[0-9:]*;[0-9;:]*\Z|[<=>?][0-9]+\Z"
)
"""Numbers of a sequence up to its end, or numbers as only a sequence has them."""

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
        self.introducer = introducer
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

    def add(self, character: str, *, is_late: bool = False) -> Part:
        """What it is with one more character, which is no escape; `broken`: not part of it.

        `is_late`: it was read later than what has begun the sequence.

        >>> OpenSequence("]").add("t"), OpenSequence("]").add("t", is_late=True)
        ('open', 'broken')
        """
        if self._left and character >= " ":
            self._keep(character)
            self._left -= 1
            return "open" if self._left else "whole"
        if self.is_string:
            if character in _ENDS:
                return "whole"
            if not (character >= " " or character in _LAYOUT):
                return "broken"
            self._keep(character)
            return "broken" if is_late and not self._may_be_an_answer else "open"
        if not " " <= character <= "~":
            return "broken"
        self._keep(character)
        if not self.is_too_long and (more := _MORE.get(self.text)):
            self._left = more
            return "open"
        is_end = character >= "@" or self.text in ANSI_SEQUENCES_KEYS
        return "whole" if is_end else "open"

    @property
    def _may_be_an_answer(self) -> bool:
        """Whether a terminal answers so, or may yet. Who presses alt with a bracket, and then other
        keys, has begun no answer: it would never end."""
        return judge_after_escape(self.text.removeprefix(ESCAPE)) != "typed"

    def _keep(self, character: str) -> None:
        if len(self.text) < LONGEST:
            self.text += character
        else:
            self.is_too_long = True


@dataclass(frozen=True, slots=True)
class Introduced:
    """What may have been a sequence and was given up."""

    introducer: str
    at: float
    """When."""


def judge_after_escape(text: str) -> Literal["rest", "open", "typed"]:
    """What was read after a lone escape: the rest of what that has begun, or what was typed.

    Of what is `open` it takes more to tell, or a while.

    >>> [judge_after_escape(one) for one in ("[6~", "[<35;4", "[", "]1", "[[", "[t", "k")]
    ['rest', 'rest', 'open', 'open', 'typed', 'typed', 'typed']
    >>> [judge_after_escape(one) for one in ("O3P", "O3", "[b")]  # Konsole's F1 with alt; rxvt's
    ['rest', 'open', 'rest']
    """
    if _REST.match(text):
        return "rest"
    return "open" if _BEGINNING.fullmatch(text) else "typed"


def is_late_rest(given_up: Introduced, text: str) -> bool:
    """Whether one read is the rest of what was given up: more than the one key that people press.

    >>> bracket = Introduced("[", 0.0)
    >>> [is_late_rest(bracket, one) for one in ("3~", "<35;4;2M", "2;1", "3", "33", "<<")]
    [True, True, True, False, False, False]
    """
    if given_up.introducer == "[":
        return _LATE_REST.match(text) is not None
    return len(text) > 1 and judge_after_escape(given_up.introducer + text) == "rest"
