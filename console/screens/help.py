"""Every key, from the one table."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from specdeck.console import keys
from specdeck.console.widgets.cells import Cell, Row, heading
from specdeck.console.widgets.text import Line, Rows


class HelpScreen(ModalScreen[None]):
    """The keys that mean something in this session, by group."""

    CSS_PATH = "help.tcss"
    BINDINGS = [("escape,q,question_mark,space,enter,f1", "dismiss", "Close")]

    def __init__(self, table: tuple[keys.Key, ...], keymap: Mapping[str, str]) -> None:
        super().__init__()
        self.table = table
        self.keymap = keymap

    def compose(self) -> ComposeResult:
        """A box with the keys."""
        with VerticalScroll(id="help"):
            yield Rows(id="keys")
            yield Line(id="close")

    def on_mount(self) -> None:
        """Fill the box."""
        rows: list[Row] = []
        group = ""
        for key in self.table:
            if key.group != group:
                rows += [Row(), heading(key.group)] if rows else [heading(key.group)]
                group = key.group
            spelt = keys.spelling(key, self.keymap)
            rows.append(Row((Cell(f"{spelt:<12} ", "key"), Cell(key.tooltip))))
        self.query_one("#keys", Rows).rows = tuple(rows)
        self.query_one("#keys").styles.height = len(rows)
        self.query_one("#close", Line).row = Row((), (Cell("esc closes", "muted"),))
