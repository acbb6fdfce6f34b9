"""The field in which somebody types what a list is searched for."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input


class SearchField(Input):
    """Has the keys while somebody searches; the list has them before and after.

    With the class `-open` while there is a search: a screen may hide it otherwise.
    """

    @dataclass
    class Searched(Message):
        """What is searched for has changed; empty is everything."""

        wanted: str

    def __init__(self, *, placeholder: str, id: str, list_type: type[Widget] | None = None) -> None:
        """`list_type` is the widget that the keys go back to; None is the screen itself."""
        super().__init__(placeholder=placeholder, id=id, compact=True)
        self._list_type = list_type

    def begin(self) -> None:
        """Take the keys."""
        self.add_class("-open").focus()

    def end(self) -> bool:
        """Search for nothing any more; whether there was a search."""
        if not (self.value or self.screen.focused is self):
            return False
        self.value = ""
        self._give_back()
        return True

    @on(Input.Changed)
    def _tell(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Searched(event.value))

    @on(Input.Submitted)
    def _keep(self, event: Input.Submitted) -> None:
        event.stop()
        self._give_back()

    def _give_back(self) -> None:
        kind = self._list_type
        self.screen.set_focus(None if kind is None else self.screen.query_one(kind))
        self.set_class(bool(self.value), "-open")
        # The list may have another height by then.
        self.call_after_refresh(self.post_message, self.Searched(self.value))
