"""Rows that are wrapped and take the height that they need."""

from __future__ import annotations

from textual.geometry import Size

from specdeck.console.renderables import row as draw
from specdeck.console.view.cell import Row
from specdeck.console.widgets.toned import Feed


class Flow(Feed):
    """For `height: auto`."""

    def watch_rows(self, old: tuple[Row, ...], new: tuple[Row, ...]) -> None:
        """More words may want more room."""
        if old != new:
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as the rows make in `width` cells."""
        return len(draw.wrapped(self.rows, width))
