"""Candidates for one token: each with its probability as a bar."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.reactive import reactive
from textual.strip import Strip

from specdeck.console.renderables.bars import bar
from specdeck.console.view.cell import Bar
from specdeck.console.widgets.toned import Toned


class Candidates(Toned):
    """A line for each bar; the labels take as much as the longest of them wants."""

    COMPONENT_CLASSES = {"candidates--bar", "candidates--other"}

    bars: reactive[tuple[Bar, ...]] = reactive(())

    def render_line(self, y: int) -> Strip:
        """One candidate."""
        width = self.size.width
        if y >= len(self.bars):
            return Strip.blank(width, self.plain)
        value = self.bars[y]
        longest = max(cell_len(one.label) for one in self.bars)
        label = max(0, min(longest, width - len(value.text) - 8))
        room = max(1, width - label - len(value.text) - 3)
        filled, track = bar(value.share, room)
        part = "candidates--bar" if value.tone == "accent" else "candidates--other"
        segments = [
            Segment(set_cell_size(value.label, label) + " ", self.style_of(value.tone)),
            Segment(filled, self.part_style(part)),
            Segment(track, self.style_of("rule")),
            Segment(f" {value.text}", self.style_of("plain")),
        ]
        return Strip(segments).adjust_cell_length(width, self.plain)
