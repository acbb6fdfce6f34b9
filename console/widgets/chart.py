"""A live chart: each sample one column, markers on the time axis."""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip

from specdeck.console.renderables import chart, scale
from specdeck.console.renderables import row as draw
from specdeck.console.view.cell import heading
from specdeck.console.view.series import Series
from specdeck.console.widgets.toned import Toned

GUTTER = 6
"""Cells for the labels of the y axis, its line included."""


class Chart(Toned):
    """A headline, the curve over several rows, and the time axis with its marks."""

    COMPONENT_CLASSES = {"chart--line", "chart--fill", "chart--zero", "chart--mark", "chart--axis"}

    series: reactive[Series] = reactive(Series(), repaint=False)

    def __init__(
        self,
        name: str,
        label: Callable[[float], str],
        *,
        id: str,
        top: float | None = None,
        moment: Callable[[float], str] = str,
    ) -> None:
        super().__init__(id=id)
        self.title = name
        self.label = label
        self.fixed_top = top
        self.moment = moment
        self.top = top or 1.0
        self.first = 0

    @property
    def columns(self) -> int:
        """Samples that fit beside the labels."""
        return max(0, self.size.width - GUTTER)

    @property
    def rows(self) -> int:
        """Lines of the curve: without headline and axis."""
        return max(0, self.size.height - 2)

    def on_resize(self) -> None:
        """The first column and the scale depend on the width."""
        self.fit()
        self.refresh()

    def fit(self) -> bool:
        """Choose first column and scale; True when the whole chart must be drawn anew."""
        first, values = self.series.shown(self.columns)
        # A chart that jumps is painted anew in any case, so its scale may fit again.
        kept = self.top if first == self.first and self.series.total > 1 else None
        top = self.fixed_top or scale.top(
            kept,
            max((value for value in values if value is not None), default=0.0),
        )
        moved = (first, top) != (self.first, self.top)
        self.first, self.top = first, top
        return moved

    def watch_series(self, old: Series, new: Series) -> None:
        """Refresh the new column alone, if that is all that changed."""
        if self.fit() or new.total != old.total + 1:
            self.refresh()
            return
        column = GUTTER + new.total - 1 - self.first
        self.refresh(Region(0, 0, self.size.width, 1), Region(column, 1, 1, self.rows))
        if new.marks != old.marks:
            self.refresh(Region(0, self.size.height - 1, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """The headline, a row of the curve, or the axis."""
        if y == 0:
            return draw.row(heading(self.title, self.series.latest), self.size.width, self.style_of)
        if y > self.rows:
            return self._axis()
        row = self.rows - y
        first, values = self.series.shown(self.columns)
        marked = frozenset(at - first for at, _ in self.series.marks)
        segments = [Segment(self._label(row), self.part_style("chart--axis"))]
        for text, part in chart.line(values, self.top, row, self.rows, marked):
            style = self.plain if part == "empty" else self.part_style(f"chart--{part}")
            segments.append(Segment(text, style))
        return Strip(segments).adjust_cell_length(self.size.width, self.plain)

    def _label(self, row: int) -> str:
        level: float | None = None
        if row == self.rows - 1:
            level = self.top
        elif self.rows >= 5 and row == (self.rows - 1) // 2 and self.rows % 2:
            level = self.top / 2
        return (
            f"{self.label(level):>{GUTTER - 2}} ┤"
            if level is not None
            else " " * (GUTTER - 1) + "│"
        )

    def _axis(self) -> Strip:
        first, values = self.series.shown(self.columns)
        marks = [(at - first, label) for at, label in self.series.marks if at >= first]
        start = self.moment(self.series.times[-len(values)]) if values else ""
        text = chart.axis(self.columns, start, marks)
        return Strip(
            [Segment(f"{self.label(0):>{GUTTER - 2}} ┴" + text, self.part_style("chart--axis"))]
        ).adjust_cell_length(self.size.width, self.plain)
