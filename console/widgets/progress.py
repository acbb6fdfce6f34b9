"""How far something is, as one line."""

from __future__ import annotations

from rich.segment import Segment
from textual.reactive import reactive
from textual.strip import Strip

from specdeck.console.renderables.bars import bar
from specdeck.console.widgets.toned import Toned


class ProgressBar(Toned):
    """A share of one; an empty track where it is not known."""

    share: reactive[float | None] = reactive(None)

    def render_line(self, y: int) -> Strip:
        """The line."""
        width = self.size.width
        filled, track = bar(self.share, width)
        done = self.style_of("good" if self.share == 1 else "accent")
        line = Strip([Segment(filled, done), Segment(track, self.style_of("rule"))])
        return line.adjust_cell_length(width, self.plain)
