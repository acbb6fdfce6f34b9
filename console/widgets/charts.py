"""Widgets that draw numbers: charts over time, curves, bars and progress."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from specdeck.console.widgets import blocks
from specdeck.console.widgets import text as draw
from specdeck.console.widgets.blocks import Curve, CurveRow, Series, bar, whisker
from specdeck.console.widgets.cells import Bar, Cell, Cells, Row, heading
from specdeck.console.widgets.text import Toned


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
            return draw.row_strip(heading(self.title), width, self.style_of)
        if not self.bars:
            empty = Row((Cell("nothing drafted", "muted"),) if y == 1 else ())
            return draw.row_strip(empty, width, self.style_of)
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


GUTTER = 6
"""Cells for the labels of the y axis, its line included."""


class Chart(Toned):
    """A headline, the curve over several rows, and the time axis with its marks."""

    COMPONENT_CLASSES = {
        "chart--line", "chart--fill", "chart--zero", "chart--mark", "chart--cursor", "chart--axis",
    }  # fmt: skip

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

    class Fitted(Message):
        """The chart has another width, and other columns with it."""

    def on_resize(self) -> None:
        """The first column and the scale depend on the width."""
        self.fit()
        self.refresh()
        self.post_message(self.Fitted())

    def fit(self) -> bool:
        """Choose first column and scale; True when the whole chart must be drawn anew."""
        first, values = self.series.window(self.columns)
        # A chart that jumps is painted anew in any case, so its scale may fit again.
        # A stretch of the past has the same scale wherever it is shown, and after whatever else.
        stays = first == self.first and self.series.total > 1 and self.series.cursor is None
        kept = self.top if stays else None
        peak = max((value for value in values if value is not None), default=0.0)
        top = self.fixed_top or blocks.axis_top(kept, peak)
        moved = (first, top) != (self.first, self.top)
        self.first, self.top = first, top
        return moved

    def watch_series(self, old: Series, new: Series) -> None:
        """Refresh the new column alone, if that is all that changed."""
        if self.fit() or new.total != old.total + 1 or new.lows or new.cursor != old.cursor:
            if new != old:
                self.refresh()
            return
        column = GUTTER + new.total - 1 - self.first
        self.refresh(Region(0, 0, self.size.width, 1), Region(column, 1, 1, self.rows))
        if new.marks != old.marks or not old.total:
            self.refresh(Region(0, self.size.height - 1, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """The headline, a row of the curve, or the axis."""
        if y == 0:
            title = heading(self.title, self.series.latest)
            return draw.row_strip(title, self.size.width, self.style_of)
        if y > self.rows:
            return self._axis()
        row = self.rows - y
        first, values = self.series.window(self.columns)
        marked = frozenset(at - first for at, _ in self.series.marks)
        segments = [Segment(self._label(row), self.part_style("chart--axis"))]
        lows = self.series.lows_from(first)
        cursor = None if self.series.cursor is None else self.series.cursor - first
        for text, part in blocks.line(
            values, self.top, row, self.rows, marked, lows=lows, cursor=cursor
        ):
            style = self.plain if part == "empty" else self.part_style(f"chart--{part}")
            segments.append(Segment(text, style))
        return Strip(segments).adjust_cell_length(self.size.width, self.plain)

    def _label(self, row: int) -> str:
        if row == self.rows - 1:
            return f"{self.label(self.top):>{GUTTER - 2}} ┤"
        if self.rows >= 5 and row == (self.rows - 1) // 2 and self.rows % 2:
            return f"{self.label(self.top / 2):>{GUTTER - 2}} ┤"
        return " " * (GUTTER - 1) + "│"

    def _axis(self) -> Strip:
        first, values = self.series.window(self.columns)
        marks = [(at - first, label) for at, label in self.series.marks if at >= first]
        start = self.moment(self.series.times[-len(values)]) if values else ""
        at = self.series.cursor
        cursor = None if at is None else (at - first, self.series.moment)
        text = blocks.axis(self.columns, start, marks, cursor)
        line = f"{self.label(0):>{GUTTER - 2}} ┴{text}"
        strip = Strip([Segment(line, self.part_style("chart--axis"))])
        return strip.adjust_cell_length(self.size.width, self.plain)


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
            return draw.row_strip(curve.title, width, self.style_of)
        choice = self._choice()
        if y == 1:
            heads: Cells = curve.head[choice] if curve.head else ()
            return draw.row_strip(Row((Cell("  k", "muted"),), heads), width, self.style_of)
        if y == self.size.height - 1:
            return draw.row_strip(curve.note, width, self.style_of)
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
