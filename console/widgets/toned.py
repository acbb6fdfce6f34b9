"""Widgets that draw cells: a tone becomes a component class, TCSS gives it a colour."""

from __future__ import annotations

from rich.style import Style
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from specdeck.console.renderables import row as draw
from specdeck.console.view.cell import TONES, Row, Tone


class Toned(Widget):
    """Knows what the tones look like here."""

    COMPONENT_CLASSES = {f"tone--{tone}" for tone in TONES}

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.looks: dict[str, Style] = {}

    def notify_style_update(self) -> None:
        """A theme or a class has changed what things look like."""
        super().notify_style_update()
        self.looks = {}

    def style_of(self, tone: Tone) -> Style:
        """The tone's look on this widget's own background."""
        return self.part_style(f"tone--{tone}")

    def part_style(self, component: str) -> Style:
        """A component's look on this widget's own background."""
        found = self.looks.get(component)
        if found is None:
            # Textual walks up to the root for every style; a chart asks for hundreds.
            own = self.get_component_rich_style(component, partial=True)
            found = self.looks[component] = self.plain + own
        return found

    @property
    def plain(self) -> Style:
        """The widget's own look."""
        found = self.looks.get("")
        if found is None:
            found = self.looks[""] = self.rich_style
        return found


class Rows(Toned):
    """Shows rows of cells and redraws those that changed."""

    rows: reactive[tuple[Row, ...]] = reactive((), repaint=False)

    def watch_rows(self, old: tuple[Row, ...], new: tuple[Row, ...]) -> None:
        """Refresh the lines that differ."""
        width = self.size.width
        for y in range(max(len(old), len(new))):
            if old[y : y + 1] != new[y : y + 1]:
                self.refresh(Region(0, y, width, 1))

    def render_line(self, y: int) -> Strip:
        """One row, or an empty line below the last."""
        width = self.size.width
        if y < len(self.rows):
            return draw.row(self.rows[y], width, self.style_of)
        return Strip.blank(width, self.plain)


class Notice(Rows):
    """As many lines as there are rows; none when there is nothing to say."""

    def watch_rows(self, old: tuple[Row, ...], new: tuple[Row, ...]) -> None:
        """Redraw, and take or give back the place of a line."""
        super().watch_rows(old, new)
        if len(old) != len(new):
            self.set_class(not new, "-empty")
            self.styles.height = len(new)


class Feed(Rows):
    """Rows that are wrapped where they are longer than the widget is wide."""

    def watch_rows(self, old: tuple[Row, ...], new: tuple[Row, ...]) -> None:
        """Where a row begins depends on those above it."""
        if old != new:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of one row."""
        lines = draw.wrapped(self.rows[: self.size.height], self.size.width)
        line = lines[y] if y < len(lines) else Row()
        return draw.row(line, self.size.width, self.style_of)


class Line(Toned):
    """Shows one row; hidden by the class `-empty` when there is nothing in it."""

    row: reactive[Row] = reactive(Row(), repaint=False)

    def watch_row(self, old: Row, new: Row) -> None:
        """Redraw, and give the line's place back when it is empty."""
        self.set_class(new == Row(), "-empty")
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The row; everything below it is blank."""
        width = self.size.width
        if y:
            return Strip.blank(width, self.plain)
        return draw.row(self.row, width, self.style_of)
