"""Speed over k: a bar for each k, with the interval of its end."""

from __future__ import annotations

from rich.segment import Segment
from textual.reactive import reactive
from textual.strip import Strip

from specdeck.console.renderables import row as draw
from specdeck.console.renderables.whisker import whisker
from specdeck.console.view.cell import Cell, Line, Row
from specdeck.console.view.tuning_curve import Curve, CurveRow
from specdeck.console.widgets.toned import Toned

_LABEL = 4
_LEAST_BAR = 14
_FRAME = 3
"""Lines that are no bars: title, heads, note."""


class CurveBars(Toned):
    """A title, the columns' heads, a bar for each k and a note."""

    COMPONENT_CLASSES = {"curve--bar", "curve--interval", "curve--expected"}

    curve: reactive[Curve] = reactive(Curve(), repaint=False)

    def watch_curve(self, old: Curve, new: Curve) -> None:
        """Redraw when anything moved."""
        if old != new:
            self.refresh()

    @property
    def lines(self) -> int:
        """The height it would have."""
        return len(self.curve.rows) + _FRAME

    def render_line(self, y: int) -> Strip:
        """One of them."""
        width, bars = self.size.width, max(0, self.size.height - _FRAME)
        curve = self.curve
        if y == 0:
            return draw.row(curve.title, width, self.style_of)
        choice = self._choice()
        if y == 1:
            heads: Line = curve.head[choice] if curve.head else ()
            return draw.row(Row((Cell("  k", "muted"),), heads), width, self.style_of)
        if y == self.size.height - 1:
            return draw.row(curve.note, width, self.style_of)
        first = max(0, min(curve.focus - bars // 2, len(curve.rows) - bars))
        index = first + y - 2
        if index >= len(curve.rows):
            return Strip.blank(width, self.plain)
        return self._bar(curve.rows[index], choice)

    def _choice(self) -> int:
        """Which of the figures leave room for a bar."""
        room = self.size.width - _LABEL - _LEAST_BAR
        for number, line in enumerate(self.curve.head):
            if sum(len(cell.text) for cell in line) <= room:
                return number
        return max(0, len(self.curve.head) - 1)

    def _bar(self, row: CurveRow, choice: int) -> Strip:
        right = row.right[choice]
        used = sum(len(cell.text) for cell in right)
        width = max(0, self.size.width - _LABEL - used - 1)
        segments = [Segment(row.label.text, self.style_of(row.label.tone))]
        for text, part in whisker(row.value, row.low, row.high, self.curve.top, width):
            name = "expected" if row.expected and part == "bar" else part
            style = self.plain if part == "empty" else self.part_style(f"curve--{name}")
            segments.append(Segment(text, style))
        segments += [Segment(cell.text, self.style_of(cell.tone)) for cell in right]
        return Strip(segments).adjust_cell_length(self.size.width, self.plain)
