"""Copies what is on the screen to the clipboard of the terminal, through SSH as well (OSC 52)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from specdeck.console import keys
from specdeck.console.screens.dialogs import Modal
from specdeck.console.state.copies import Copyable
from specdeck.console.widgets.format import shorten
from specdeck.console.widgets.options import LineList
from specdeck.engine.text import oneline, printable


@runtime_checkable
class HasCopies(Protocol):
    """A screen of which something can be copied."""

    def list_copies(self) -> Sequence[Copyable]:
        """What can be copied, the selected thing first."""


@runtime_checkable
class FindsCopies(Protocol):
    """A screen that has to look for some of it, so that others are drawn and heard meanwhile."""

    async def find_copies(self) -> Sequence[Copyable]:
        """As `HasCopies.list_copies`."""


class CopyDialog(Modal[Copyable | None]):
    """Returns what is to be copied; None for nothing."""

    CSS_PATH = "copy.tcss"
    PLACE: ClassVar[keys.Place] = "dialog"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium")]
    BINDINGS = [*keys.bindings("dialog")]

    def __init__(self, copies: Sequence[Copyable] | None = None) -> None:
        """`copies` is None where `fill` is given them later."""
        super().__init__()
        self.copies: Sequence[Copyable] = copies or ()
        self._is_filled = copies is not None

    def compose(self) -> ComposeResult:
        """What there is, and the keys."""
        with Vertical(id="dialog"):
            yield Label("Copy to the clipboard", id="question", markup=False)
            yield LineList(markup=False, compact=True)
            yield Label("enter copies   esc closes", id="keys", markup=False)

    def on_mount(self) -> None:
        """List it, unless this went before it was there: keys come faster than screens."""
        self.list_options()
        for options in self.query(OptionList):
            options.focus()

    def fill(self, copies: Sequence[Copyable]) -> None:
        """List what was found meanwhile."""
        self.copies, self._is_filled = copies, True
        self.list_options()

    def on_resize(self) -> None:
        """Lines are cut to the width."""
        self.list_options()

    def list_options(self) -> None:
        """A line for each."""
        if (options := next(iter(self.query(OptionList)), None)) is None:
            return
        width, at = max(20, options.size.width - 2), options.highlighted
        longest = max((len(one.label) for one in self.copies), default=0)
        options.clear_options()
        options.add_options(
            Option(shorten(f"{one.label:<{longest}}  {printable(oneline(one.text))}", width))
            for one in self.copies
        )
        options.highlighted = at or 0
        question = "Copy to the clipboard" if self._is_filled else "Looking for what can be copied"
        self.query_one("#question", Label).update(question)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take it."""
        self.dismiss(self.copies[event.option_index])
