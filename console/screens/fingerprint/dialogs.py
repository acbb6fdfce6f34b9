"""What a fingerprint is to be compared with, and whether a pin may be overwritten."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from specdeck.console import keys, screenshots
from specdeck.console.screens.dialogs import Choice, Dialog, Modal
from specdeck.console.widgets.options import LineList
from specdeck.engine.text import printable


@dataclass(frozen=True, slots=True)
class Side:
    """Something to compare with."""

    kind: Literal["pin", "engine", "moment", "nothing"]
    label: str = ""
    value: str = ""
    """An engine as an operator names it, or a moment's number."""


class AgainstScreen(Modal[Side | None]):
    """Returns what was chosen, or the engine at the address that was typed; None for neither."""

    CSS_PATH = "dialogs.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium")]
    BINDINGS = [*keys.bindings("dialog")]

    def __init__(self) -> None:
        super().__init__()
        self.sides: tuple[Side, ...] = ()
        """What is listed; nothing until `fill` is given it."""

    def compose(self) -> ComposeResult:
        """The list, and a line to type in."""
        with Vertical(id="against"):
            yield Label("Compare with", id="question")
            yield LineList(markup=False)
            yield Input(placeholder="another engine: URL, port, or a name from ps", id="address")

    def on_mount(self) -> None:
        """List what is known by then."""
        self.fill(self.sides)

    def fill(self, sides: tuple[Side, ...]) -> None:
        """List what there is to choose from, which may be known before there is a list."""
        self.sides = sides
        for listing in self.query(LineList):
            listing.clear_options()
            # Option takes markup; a name from outside is none.
            labels = (printable(side.label).replace("[", r"\[") for side in sides)
            listing.add_options(map(Option, labels))
            listing.highlighted = 0 if sides else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """One of the list."""
        self.dismiss(self.sides[event.option_index])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """An address."""
        if address := event.value.strip():
            self.dismiss(Side("engine", address, address))


def overwrite_dialog(place: Path, opened_by: Collection[str]) -> Dialog:
    """Asks whether a pin is to be overwritten; its value is empty for no."""
    return Dialog(
        "Overwrite the pin?",
        f"{screenshots.abbreviate_home(place)} holds the present pin. It will be replaced.",
        (
            Choice("pin", "o", "Pin what is seen now"),
            Choice("", "escape", "Keep the pin"),
        ),
        opened_by,
    )
