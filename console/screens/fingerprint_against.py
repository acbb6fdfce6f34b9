"""What a fingerprint is to be compared with: one list, or an address that is typed."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from specdeck.console.widgets.format import printable


class AgainstScreen(ModalScreen[str]):
    """Returns the value of what was chosen or the address that was typed; empty for neither."""

    CSS_PATH = "fingerprint_against.tcss"
    BINDINGS = [("escape", "dismiss('')", "Back")]

    def __init__(self, choices: tuple[tuple[str, str], ...]) -> None:
        """`choices` are values and what they are called."""
        super().__init__()
        self.choices = choices

    def compose(self) -> ComposeResult:
        """The list, and a line to type in."""
        with Vertical(id="against"):
            yield Label("Compare with", id="question")
            # Option takes markup; a name from outside is none.
            options = (
                Option(printable(label).replace("[", r"\["), id=value)
                for value, label in self.choices
            )
            yield OptionList(*options)
            yield Input(placeholder="another engine: URL, port, or a name from ps", id="address")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """One of the list."""
        self.dismiss(event.option_id or "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """An address."""
        if event.value.strip():
            self.dismiss(f"engine {event.value.strip()}")
