"""A moment asked for, and an event that is looked at closely."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Label

from specdeck.console import keys
from specdeck.console.screens.dialogs import LineDialog, Modal
from specdeck.console.widgets.cells import Row
from specdeck.console.widgets.text import Flow
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.text import printable

_LONGEST = 60
"""Characters of a moment that is typed."""


class MomentDialog(LineDialog[str]):
    """Returns what was typed, once it is a moment."""

    CSS_PATH = "dialogs.tcss"
    PLACE: ClassVar[keys.Place] = "dialog"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(self, recorded: str, read: Callable[[str], object]) -> None:
        """`recorded` says from when to when there is something; `read` raises SpecdeckError for
        what is no moment."""
        super().__init__()
        self.recorded = recorded
        self._read = read

    def compose(self) -> ComposeResult:
        """What is asked, a line to type on, what is recorded."""
        with Vertical(id="dialog"):
            yield Label("go to", id="question", markup=False)
            yield Input(
                placeholder="03:10, -20m, yesterday 23:00", max_length=_LONGEST, compact=True
            )
            yield Label(printable(self.recorded), id="explanation", markup=False)
            yield Label("enter goes there   esc stays here", id="keys", markup=False)

    def on_mount(self) -> None:
        """Type at once."""
        self.begin_line(self.query_one(Input), self.submit)

    @on(Input.Changed)
    def _forget_refusal(self) -> None:
        explained = self.query_one("#explanation", Label)
        explained.update(printable(self.recorded))
        explained.remove_class("-bad")

    @on(Input.Submitted)
    def submit(self) -> None:
        """Return it, unless it is no moment."""
        typed = self.query_one(Input).value
        try:
            self._read(typed)
        except SpecdeckError as error:
            explained = self.query_one("#explanation", Label)
            explained.update(printable(error.line()))
            explained.add_class("-bad")
        else:
            self.dismiss(typed)


class EventDialog(Modal[None]):
    """Shows one event closely."""

    CSS_PATH = "dialogs.tcss"
    PLACE: ClassVar[keys.Place] = "event"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(self, question: str, rows: tuple[Row, ...]) -> None:
        super().__init__()
        self.question = question
        self.rows = rows

    def compose(self) -> ComposeResult:
        """What happened, and what was measured around it."""
        with VerticalScroll(id="dialog"):
            yield Label(printable(self.question), id="question", markup=False)
            yield Flow(id="about")
            yield Label("enter or esc closes", id="keys", markup=False)

    def on_mount(self) -> None:
        """Fill it."""
        self.query_one("#about", Flow).rows = self.rows
