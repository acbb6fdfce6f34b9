"""The wishes of a check as a form."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from specdeck.console.bench import Wishes
from specdeck.console.view.divergence_wishes import FIELDS, spelt, wishes
from specdeck.console.widgets.cells import Cell, Row
from specdeck.console.widgets.text import Line
from specdeck.engine.errors import UsageError


class Form(ModalScreen[Wishes | None]):
    """Enter takes everything, escape nothing."""

    CSS_PATH = "divergence_form.tcss"
    BINDINGS = [
        Binding("escape", "dismiss(None)", "back", id="form.back"),
        Binding("down", "app.focus_next", "next", id="form.next"),
        Binding("up", "app.focus_previous", "previous", id="form.previous"),
    ]

    def __init__(self, now: Wishes) -> None:
        super().__init__()
        self.now = now

    def compose(self) -> ComposeResult:
        """A line for each wish."""
        texts = spelt(self.now)
        with VerticalScroll(id="form", can_focus=False):
            for field in FIELDS:
                with Horizontal(classes="wish"):
                    yield Label(field.label, markup=False)
                    yield Input(
                        texts[field.name], id=field.name, placeholder=field.empty, compact=True
                    )
            yield Line(id="form-problem")
            yield Line(id="form-keys")

    def on_mount(self) -> None:
        """Begin with the first."""
        self.query_one("#form-keys", Line).row = Row(
            (Cell("enter ", "key"), Cell("take all  ", "muted"), Cell("↑ ↓ ", "key"),
             Cell("move", "muted")),
            (Cell("esc ", "key"), Cell("back", "muted")),
        )  # fmt: skip
        self.query_one(f"#{FIELDS[0].name}").focus()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        texts = {field.name: self.query_one(f"#{field.name}", Input).value for field in FIELDS}
        try:
            found = wishes(texts)
        except UsageError as error:
            self.query_one("#form-problem", Line).row = Row((Cell(error.line(), "bad"),))
        else:
            self.dismiss(found)
