"""Widgets that draw cells as text: rows, lines, notices, feeds and running text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from specdeck.console.widgets.cells import TONES, Cell, Cells, Row, Tone
from specdeck.engine.text import printable

_SEPARATOR = "·"
StyleOf = Callable[[Tone], Style]
"""What a tone looks like in the widget that draws."""


class ForeignText(LineFilter):
    """The last gate before the terminal, for widgets of Textual's own: labels, lists, fields.

    They pass on what they are given, escape sequences included. A line stays as wide as it is:
    what takes no cell is left out, what takes one is a dot.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments of a line, which are those given in all but rare cases."""
        if all(segment.text.isprintable() or segment.control for segment in segments):
            return segments
        return [
            segment if segment.control else Segment(_dot(segment.text), segment.style)
            for segment in segments
        ]


def _dot(text: str) -> str:
    return printable(text, lambda character: "·" * cell_len(character))


def row_strip(value: Row, width: int, style_of: StyleOf) -> Strip:
    """The row in `width` cells; the left part is cut short before the right part is.

    Where the row has shorter right parts, the first that leaves the left one whole is taken, or
    what the row keeps of it.
    """
    right, used = _segments(_right(value, width), width, style_of)
    left, room = _segments(value.left, max(0, width - used - bool(used)), style_of)
    gap = width - used - room
    fill = Segment(value.fill * gap, style_of("rule" if value.fill != " " else "plain"))
    return Strip([*left, fill, *right] if gap else [*left, *right], width)


def _right(value: Row, width: int) -> Cells:
    room = width - measure(value.left[: value.kept]) - 1
    choices = (value.right, *value.shorter)
    return next((line for line in choices if measure(line) <= room), choices[-1])


def measure(line: Iterable[Cell]) -> int:
    """The columns that cells take."""
    return sum(cell_len(cell.text) for cell in line)


def wrap_rows(rows: Iterable[Row], width: int) -> list[Row]:
    """The rows with the last cell of each wrapped below itself.

    >>> lines = wrap_rows([Row((Cell("12:00 "), Cell("k went to 3")))], 15)
    >>> ["".join(cell.text for cell in line.left) for line in lines]
    ['12:00 k went', '      to 3']
    """
    lines: list[Row] = []
    for value in rows:
        *before, last = value.left or (Cell(""),)
        indent = measure(before)
        parts = textwrap.wrap(last.text, max(8, width - indent - 1)) or [last.text]
        for number, part in enumerate(parts):
            start = before if number == 0 else [Cell(" " * indent)]
            lines.append(Row((*start, replace(last, text=part))))
    return lines


def _segments(line: Cells, width: int, style_of: StyleOf) -> tuple[list[Segment], int]:
    segments: list[Segment] = []
    used = 0
    for cell in line:
        # The last gate before the terminal: names and reasons come from elsewhere.
        cell = cell if cell.text.isprintable() else replace(cell, text=printable(cell.text))
        style = style_of(cell.tone)
        if cell.action is not None:
            style += Style.from_meta({"@click": cell.action})
        length = cell_len(cell.text)
        if used + length <= width:
            segments.append(Segment(cell.text, style))
            used += length
            continue
        if width - used > 1 and cell.text.strip() != _SEPARATOR:
            segments.append(Segment(set_cell_size(cell.text, width - used - 1) + "…", style))
            return segments, width
        # A separator with nothing behind it says nothing.
        while segments and segments[-1].text.strip() == _SEPARATOR:
            used -= cell_len(segments.pop().text)
        if segments and used < width:
            segments.append(Segment("…", style))
            used += 1
        return segments, used
    return segments, used


def passage_lines(cells: Iterable[Cell], width: int) -> list[Cells]:
    """The lines that the text makes in `width` cells.

    >>> lines = passage_lines((Cell("ab\\ncde"), Cell("f", "bad")), 2)
    >>> [[cell.text for cell in line] for line in lines]
    [['ab'], ['cd'], ['e', 'f']]
    """
    lines: list[list[Cell]] = [[]]
    room = width
    for cell in cells:
        for number, part in enumerate(cell.text.expandtabs(4).split("\n")):
            if number:
                lines.append([])
                room = width
            for piece, fresh in _pieces(part, room, width):
                if fresh:
                    lines.append([])
                    room = width
                lines[-1].append(Cell(piece, cell.tone))
                room -= cell_len(piece)
    return [tuple(line) for line in lines]


def _pieces(text: str, room: int, width: int) -> Iterable[tuple[str, bool]]:
    """`text` cut to fit, and whether each piece begins a line."""
    piece, fresh = "", False
    for character in text:
        dotted = printable(character)
        length = cell_len(dotted)
        if length > room:
            if piece:
                yield piece, fresh
            piece, fresh, room = "", True, width
        piece += dotted
        room -= length
    if piece:
        yield piece, fresh


TONE_CLASSES = {f"tone--{tone}" for tone in TONES}
"""The component classes of an app that shows toned widgets.

They are the app's: as each widget's own, Textual would style nine nodes more for it at its start
and whenever one of its classes changes.
"""


class Toned(Widget):
    """Knows what the tones look like here."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.looks: dict[str, Style] = {}

    def notify_style_update(self) -> None:
        """A theme or a class has changed what things look like."""
        super().notify_style_update()
        self.looks = {}

    def style_of(self, tone: Tone) -> Style:
        """The tone's look on this widget's own background."""
        component = f"tone--{tone}"
        found = self.looks.get(component)
        if found is None:
            own = self.app.get_component_styles(component).partial_rich_style
            found = self.looks[component] = self.plain + own
        return found

    def part_style(self, component: str) -> Style:
        """The look of one of this widget's components on its own background."""
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
            return row_strip(self.rows[y], width, self.style_of)
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
        lines = wrap_rows(self.rows[: self.size.height], self.size.width)
        line = lines[y] if y < len(lines) else Row()
        return row_strip(line, self.size.width, self.style_of)


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
        return row_strip(self.row, width, self.style_of)


class Flow(Feed):
    """For `height: auto`."""

    def watch_rows(self, old: tuple[Row, ...], new: tuple[Row, ...]) -> None:
        """More words may want more room."""
        if old != new:
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as the rows make in `width` cells."""
        return len(wrap_rows(self.rows, width))


class Passage(Toned):
    """Shows the last lines of running text; of two beside each other both show the same lines."""

    cells: reactive[tuple[Cell, ...]] = reactive(())

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.beside: Passage | None = None
        """The one whose lines are compared with these; None is no other."""
        self._drawn: tuple[tuple[Cell, ...], int] = ((), 0)
        self._lines: list[Cells] = []

    @property
    def lines(self) -> list[Cells]:
        """All that the text makes at this width."""
        width = max(1, self.size.width)
        if self._drawn != (self.cells, width):
            self._drawn = (self.cells, width)
            self._lines = passage_lines(self.cells, width)
        return self._lines

    @property
    def first(self) -> int:
        """The line at the top: the last one of the text that is behind is still to be seen."""
        both = [self] if self.beside is None or not self.beside.size.height else [self, self.beside]
        last = min(len(one.lines) for one in both)
        return max(0, last - min(one.size.height for one in both))

    def watch_cells(self) -> None:
        """Where the other one scrolls to depends on this text too."""
        if self.beside is not None:
            self.beside.refresh()

    def on_resize(self) -> None:
        """And on its width."""
        self.watch_cells()

    def render_line(self, y: int) -> Strip:
        """A line of those that fit."""
        shown = self.lines[self.first + y : self.first + y + 1]
        return row_strip(Row(shown[0] if shown else ()), self.size.width, self.style_of)
