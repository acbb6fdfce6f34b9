"""What a terminal pastes, between the marks that it sets around it."""

from __future__ import annotations

from typing import Final

PASTE_BEGIN: Final = "\x1b[200~"
PASTE_END: Final = "\x1b[201~"


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
