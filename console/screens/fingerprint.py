"""The fingerprint's facts and what moved."""

from __future__ import annotations

from textual.app import ComposeResult

from specdeck.console.screens.over import OverScreen
from specdeck.console.view.cell import heading
from specdeck.console.widgets.toned import Line


class FingerprintScreen(OverScreen):
    """The fingerprint's facts and what moved."""

    CSS_PATH = "fingerprint.tcss"

    def compose(self) -> ComposeResult:
        """A heading."""
        yield Line(id="heading")

    def on_mount(self) -> None:
        """Fill it."""
        self.show()

    def show(self) -> None:
        """Name the engine."""
        self.query_one("#heading", Line).row = heading(self.live.engine.name)
