"""A small question with a few answers, each with its own key."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from specdeck.console.widgets.format import printable


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer."""

    value: str
    """What the dialog returns; empty for leaving things as they are."""
    key: str
    label: str


class Dialog(ModalScreen[str]):
    """Returns the value of the answer; escape is the last one."""

    CSS_PATH = "dialog.tcss"

    def __init__(self, question: str, explanation: str, choices: tuple[Choice, ...]) -> None:
        super().__init__()
        self.question = question
        self.explanation = explanation
        self.choices = choices

    def compose(self) -> ComposeResult:
        """The question, what it means, the answers."""
        with Vertical(id="dialog"):
            yield Label(printable(self.question), id="question", markup=False)
            yield Label(self.explanation, id="explanation", markup=False)
            yield OptionList(*(Option(self._prompt(choice)) for choice in self.choices))

    def _prompt(self, choice: Choice) -> str:
        spelt = "esc" if choice.key == "escape" else choice.key
        return f"{spelt:<4} {choice.label}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """An answer was chosen with enter or the mouse."""
        self.dismiss(self.choices[event.option_index].value)

    def on_key(self, event: Key) -> None:
        """An answer was chosen by its key."""
        for choice in self.choices:
            if event.key == choice.key:
                event.stop()
                self.dismiss(choice.value)
