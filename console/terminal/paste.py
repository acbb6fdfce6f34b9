"""What a terminal pastes, between the marks that it sets around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from textual.message import Message

PASTE_BEGIN: Final = "\x1b[200~"
PASTE_END: Final = "\x1b[201~"

CTRL_C: Final = "\x03"
_CTRL_C: Final = r"\x03|\x1b\[99;5[\d;:]*u"
_INTERRUPT: Final = re.compile(_CTRL_C)
_LEAVING: Final = re.compile(rf"(?:{_CTRL_C}|\x1b\[27[\d;:]*u|\x1b(?!\[))+")
"""The escape key or Ctrl-C, and nothing else, in either way that a terminal sends them."""
_REPORT: Final = re.compile(r"\x1b\[(?:<\d+;\d+;\d+[Mm]|[IO])")
"""Of the mouse, or of the terminal's focus: sent beside a paste, as no one pastes them."""


class PasteStalled(Message):
    """A paste is silent for long, and its end has not come."""


class PasteDropped(Message):
    """A paste without an end was left by a key, and keys count again."""


class OpenPaste:
    """A paste of which more is to come; an escape within is text, unless it begins the end.

    >>> paste = OpenPaste(longest=100)
    >>> [paste.add(one) for one in "k\\x1b[A\\x1b[201~"][-2:], paste.text
    ([False, True], 'k\\x1b[A')
    """

    def __init__(self, longest: int) -> None:
        """`longest`: characters that are kept."""
        self._longest = longest
        self._kept: list[str] = []
        self._end = ""
        """As much of the end as came."""

    @property
    def text(self) -> str:
        """What was pasted, without half an end and without zeros, as Textual has it."""
        return "".join(self._kept).replace("\x00", "")

    @property
    def is_full(self) -> bool:
        """Whether nothing is kept any more; the end counts still."""
        return len(self._kept) >= self._longest

    def add(self, character: str) -> bool:
        """Whether this was its end's last character."""
        if PASTE_END.startswith(self._end + character):
            self._end += character
            return self._end == PASTE_END
        was, self._end = self._end, ""
        for one in was:
            self._keep(one)
        if character == PASTE_END[0]:
            self._end = character
        else:
            self._keep(character)
        return False

    def _keep(self, character: str) -> None:
        if not self.is_full:
            self._kept.append(character)


@dataclass(frozen=True, slots=True)
class Way:
    """What one read within a paste is to whoever wants to leave that."""

    is_pasted: bool
    """Whether it shows that the paste goes on."""
    is_leaving: bool
    """Whether it is a key to leave a paste by, unless more comes of an escape at once."""
    interrupts: int
    """How often it has Ctrl-C."""


def find_way(text: str) -> Way:
    """What one read within a paste is.

    >>> [find_way(one).is_leaving for one in ("\x1b", "\x03", "\x1b[27u", "\x1b[A", "k\x03")]
    [True, True, True, False, False]
    >>> find_way("\x1b[<35;4;2M\x03"), find_way("\x1b[<35;4;2M").is_pasted
    (Way(is_pasted=False, is_leaving=True, interrupts=1), False)
    """
    keys = _REPORT.sub("", text)
    is_leaving = _LEAVING.fullmatch(keys) is not None
    interrupts = len(_INTERRUPT.findall(keys)) if is_leaving else 0
    return Way(bool(keys) and not is_leaving, is_leaving, interrupts)
