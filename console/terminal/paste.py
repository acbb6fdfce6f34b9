"""What a terminal pastes, between the marks that it sets around it."""

from __future__ import annotations

import re
from typing import Final

from textual.message import Message

PASTE_BEGIN: Final = "\x1b[200~"
PASTE_END: Final = "\x1b[201~"

_LEAVING: Final = re.compile(r"(?:\x03|\x1b\[(?:27|99;5)[\d;:]*u|\x1b(?!\[))+")
"""The escape key or Ctrl-C, and nothing else, in either way that a terminal sends them."""


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


def is_leaving(text: str) -> bool:
    """Whether one read is a key to leave a paste by, unless more comes of an escape at once.

    >>> is_leaving("\x1b"), is_leaving("\x03"), is_leaving("\x1b[27u"), is_leaving("\x1b[A")
    (True, True, True, False)
    """
    return _LEAVING.fullmatch(text) is not None
