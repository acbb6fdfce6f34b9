"""Acceptance at each position as horizontal bars."""

from __future__ import annotations

from rich.segment import Segment
from textual.reactive import reactive
from textual.strip import Strip

from specdeck.console.renderables import row as draw
from specdeck.console.renderables.bars import bar
from specdeck.console.view.cell import Bar, Cell, Row, heading
from specdeck.console.widgets.toned import Toned


class Bars(Toned):
    """A heading and one bar for each entry; in two columns when they are many."""

    COMPONENT_CLASSES = {"bars--bar", "bars--dim"}

    bars: reactive[tuple[Bar, ...]] = reactive(())

    def __init__(self, name: str, *, id: str) -> None:
        super().__init__(id=id)
        self.title = name

    def render_line(self, y: int) -> Strip:
        """The heading or a line of bars."""
        width, lines = self.size.width, max(1, self.size.height - 1)
        if y == 0:
            return draw.row(heading(self.title), width, self.style_of)
        if not self.bars:
            return draw.row(
                Row((Cell("nothing drafted", "muted"),) if y == 1 else ()), width, self.style_of
            )
        columns = -(-len(self.bars) // lines)
        segments: list[Segment] = []
        for column in range(columns):
            index = column * lines + y - 1
            if index < len(self.bars):
                segments += self._bar(self.bars[index], width // columns - (column < columns - 1))
                segments.append(Segment(" ", self.plain))
        return Strip(segments).adjust_cell_length(width, self.plain)

    def _bar(self, value: Bar, width: int) -> list[Segment]:
        part = "bars--dim" if value.tone == "muted" else "bars--bar"
        muted, plain = self.style_of("muted"), self.style_of(value.tone)
        filled, track = bar(value.share, max(1, width - 9))
        return [
            Segment(f"{value.label:>2} ", muted),
            Segment(filled, self.part_style(part)),
            Segment(track, self.style_of("rule")),
            Segment(f"{value.text:>6}", plain),
        ]
