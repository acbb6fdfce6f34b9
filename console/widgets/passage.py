"""Text as it streams in: its end is always in sight."""

from __future__ import annotations

from textual.reactive import reactive
from textual.strip import Strip

from specdeck.console.renderables import row as draw
from specdeck.console.renderables.passage import passage
from specdeck.console.view.cell import Cell, Line, Row
from specdeck.console.widgets.toned import Toned


class Passage(Toned):
    """Shows the last lines of running text."""

    cells: reactive[tuple[Cell, ...]] = reactive(())

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._drawn: tuple[tuple[Cell, ...], int] = ((), 0)
        self._lines: list[Line] = []

    def render_line(self, y: int) -> Strip:
        """A line of those that fit, the last one below."""
        size = self.size
        if self._drawn != (self.cells, size.width):
            self._drawn = (self.cells, size.width)
            self._lines = passage(self.cells, max(1, size.width))
        shown = self._lines[-size.height :]
        return draw.row(Row(shown[y] if y < len(shown) else ()), size.width, self.style_of)
