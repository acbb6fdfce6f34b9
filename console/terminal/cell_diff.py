"""Writes only the cells that differ from what the terminal already shows.

Textual resends a widget's row from its edge when one cell of it has changed. `CellDiff`
reads Textual's frames, keeps the screen's cells, and passes on what is new: the same
screen for a fraction of the bytes. What it does not know it passes through untouched,
and then believes nothing that could have been altered by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rich.cells import get_character_cell_size

from specdeck.console.terminal.sgr import PLAIN, Pen, apply_sgr, on_space, transition

_TOKEN: Final = re.compile(
    r"\x1b\[(?P<args>[0-9;:<=>?]*)(?P<inter>[ -/]*)(?P<final>[@-~])"
    r"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|(?P<other>\x1b[^\[\]]?|[\x00-\x1f\x7f-\x9f])",
)

_SIMPLE: Final = re.compile("[ -~─-▟]+")
"""Characters of one cell in every terminal: ASCII, lines and blocks."""

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_HARMLESS: Final = re.compile(r"[<=>?][0-9;]*\$?[hlpqu]")
"""Private modes, mode queries and keyboard protocols: no cell changes by them …"""
_HARMFUL: Final = re.compile(r"\?(?:.*;)?(?:3|5|6|7|47|1047|1048|1049)(?:;.*)?[hl]")
"""… but by these: other buffers, other widths, reversed screens."""

Shown = tuple[str, Pen]
"""A cell: its text, empty for the right half of a wide character, and its pen."""

Place = tuple[int, int]
"""Row and column, from 0."""


class CellDiff:
    """One terminal's cells; `feed` turns Textual's output into less of the same."""

    def __init__(self, width: int, height: int) -> None:
        self._pending: dict[Place, Shown] = {}
        self._out: list[str] = []
        self.reset(width, height)

    def reset(self, width: int, height: int, *, cuts: bool = False) -> None:
        """Believe nothing about the terminal but its size.

        `cuts`: the frames are of a larger screen, and what lies beyond this one is left out.
        """
        self.width, self.height, self._cuts = width, height, cuts
        self._shown: dict[Place, Shown] = {}
        self._pending.clear()
        self._cursor: Place | None = None
        self._real_cursor: Place | None = None
        self._pen = PLAIN
        self._real_pen: Pen | None = None
        self._sync = False
        self._wide = False  # whether any wide character has been seen

    def feed(self, data: str) -> str:
        """What to write so that the terminal shows what `data` would have made it show."""
        self._out = []
        at = 0
        for token in _TOKEN.finditer(data):
            if token.start() != at:
                self._pass(data[at : token.start()])
            at = token.end()
            self._take(token)
        if at != len(data):
            self._pass(data[at:])
        if self._pending:
            self._flush()
        self._park()
        return "".join(self._out)

    def _take(self, token: re.Match[str]) -> None:
        text = token["text"]
        if text is not None:
            self._write(text)
        elif token["final"] is not None:
            self._control(token[0], token["args"], token["inter"], token["final"])
        elif token["other"] == "\n" and self._cursor is not None:
            # Whether the column stays depends on the terminal line; Textual moves next.
            if self._cursor[0] >= self.height - 1 and not self._cuts:  # it scrolls
                self._pass(token[0])
            self._cursor = None
        elif token["osc"] is not None and not token["osc"].startswith("8;"):
            self._out.append(token[0])  # titles, the clipboard: no cell
        else:
            self._pass(token[0])

    def _control(self, whole: str, args: str, inter: str, final: str) -> None:
        if final == "m" and not inter and not args.startswith(("<", "=", ">", "?")):
            pen = apply_sgr(self._pen, args)
            if pen is None:
                self._pass(whole)
            else:
                self._pen = pen
        elif final == "H" and not inter and re.fullmatch(r"[0-9]*;?[0-9]*", args):
            row, _, column = args.partition(";")
            self._cursor = max(1, int(row or 1)) - 1, max(1, int(column or 1)) - 1
        elif whole == _BEGIN:
            self._sync = True  # sent together with the first change, if there is one
        elif whole == _END:
            self._flush()
            self._park()
            if not self._sync:
                self._out.append(whole)
            self._sync = False
        elif _HARMLESS.fullmatch(args + inter + final) and not _HARMFUL.fullmatch(args + final):
            self._out.append(whole)
        else:
            self._pass(whole)

    def _pass(self, raw: str) -> None:
        """Send something unknown as it is, and forget everything it might have changed."""
        self._flush()
        self._settle()
        self._emit(raw)
        pen, width, height = self._pen, self.width, self.height
        sync, out = self._sync, self._out
        self.reset(width, height, cuts=self._cuts)
        self._pen, self._sync, self._out = pen, sync, out

    def _settle(self) -> None:
        """Bring the terminal's cursor and pen to where Textual believes they are."""
        if self._cursor is not None and self._cursor != self._real_cursor:
            self._emit(f"\x1b[{self._cursor[0] + 1};{self._cursor[1] + 1}H")
        if self._pen != self._real_pen:
            self._emit(transition(self._real_pen, self._pen))

    def _write(self, text: str) -> None:
        if self._cursor is None:
            self._pass(text)
            return
        row, column = self._cursor
        pen, spaced = self._pen, on_space(self._pen)
        inside = row < self.height and column + len(text) <= self.width
        if inside and not self._wide and _SIMPLE.fullmatch(text):
            self._write_simple(row, column, text, pen, spaced)
            return
        widths = [_width(char) for char in text]
        if self._cuts:
            self._write_cut(row, column, text, widths)
            return
        if row >= self.height or column + sum(widths) > self.width or 0 in widths:
            # Joined characters and overlong rows are the terminal's own business.
            self._pass(text)
            return
        for char, width in zip(text, widths, strict=True):
            self._put(row, column, char, width, spaced if char == " " else pen)
            column += width
        self._cursor = row, column

    def _write_cut(self, row: int, column: int, text: str, widths: list[int]) -> None:
        """What there is room for; what joins its neighbour is left out with the rest."""
        pen, spaced = self._pen, on_space(self._pen)
        for char, width in zip(text, widths, strict=True):
            if width and row < self.height and column + width <= self.width:
                self._put(row, column, char, width, spaced if char == " " else pen)
            column += width
        self._cursor = row, column

    def _write_simple(self, row: int, column: int, text: str, pen: Pen, spaced: Pen) -> None:
        """The same for text of one cell each on a screen without wide characters: the rule."""
        pending, shown = self._pending, self._shown
        for place, char in enumerate(text, column):
            cell = char, (spaced if char == " " else pen)
            if shown.get((row, place)) != cell or (row, place) in pending:
                pending[row, place] = cell
        self._cursor = row, column + len(text)

    def _put(self, row: int, column: int, char: str, width: int, pen: Pen) -> None:
        if width == 2:
            self._wide = True
        if self._wide:
            for orphan in self._orphans(row, range(column, column + width)):
                # What becomes of half a wide character differs between terminals: let this
                # one see both writes, and believe nothing about that half.
                self._flush()
                self._shown.pop((row, orphan), None)
        self._pending[row, column] = char, pen
        if width == 2:
            self._pending[row, column + 1] = "", pen

    def _orphans(self, row: int, inside: range) -> Iterator[int]:
        """Halves of wide characters that lose their other half when `inside` is written."""
        if self._now(row, inside[0]) == "":
            yield inside[0] - 1
        if self._now(row, inside[-1] + 1) == "":
            yield inside[-1] + 1

    def _now(self, row: int, column: int) -> str | None:
        cell = self._pending.get((row, column)) or self._shown.get((row, column))
        return None if cell is None else cell[0]

    def _flush(self) -> None:
        """Write the cells that differ, from top to bottom."""
        changed = {place: cell for place, cell in self._pending.items()
                   if self._shown.get(place) != cell}  # fmt: skip
        self._shown.update(self._pending)
        self._pending.clear()
        for place in sorted(changed):
            text, pen = changed[place]
            if not text:
                # The right half comes with the left one, which may have been shown before.
                left = place[0], place[1] - 1
                if left in changed or left not in self._shown:
                    continue
                place, (text, pen) = left, self._shown[left]
            self._paint(place, text, pen)

    def _paint(self, place: Place, text: str, pen: Pen) -> None:
        self._move(place)
        if pen != self._real_pen:
            self._emit(transition(self._real_pen, pen))
            self._real_pen = pen
        self._emit(text)
        row, column = place[0], place[1] + _width(text)
        # After the last column a terminal may or may not have moved on.
        self._real_cursor = (row, column) if column < self.width else None

    def _move(self, place: Place) -> None:
        if place == self._real_cursor:
            return
        self._emit(min(self._ways(place), key=len))
        self._real_cursor = place

    def _ways(self, place: Place) -> Iterator[str]:
        """Cursor movements that lead there."""
        row, column = place
        yield f"\x1b[{row + 1};{column + 1}H" if column else f"\x1b[{row + 1}H" if row else "\x1b[H"
        if self._real_cursor is None:
            return
        down, right = row - self._real_cursor[0], column - self._real_cursor[1]
        if down < 0 or down > 1:
            return
        lower = "\x1b[B" if down else ""
        if right == 0:
            yield lower
        elif right < 0:
            yield lower + "\b" * -right
        else:
            yield lower + (f"\x1b[{right}C" if right > 1 else "\x1b[C")
            if not down:
                yield from self._across(row, self._real_cursor[1], column)

    def _across(self, row: int, start: int, end: int) -> Iterator[str]:
        """Writing a short gap anew is cheaper than jumping over it."""
        if end - start > 4:
            return
        cells = [self._shown.get((row, column)) for column in range(start, end)]
        text = "".join(cell[0] for cell in cells if cell is not None and cell[1] == self._real_pen)
        if len(text) == end - start and text.isascii():
            yield text

    def _park(self) -> None:
        """Leave the cursor where Textual left it, if anything has been written."""
        place = self._cursor
        if self._out and place is not None and place[0] < self.height and place[1] < self.width:
            self._move(place)

    def _emit(self, text: str) -> None:
        if self._sync:
            self._sync = False
            self._out.append(_BEGIN)
        self._out.append(text)


def _width(char: str) -> int:
    """Cells that a character takes; 0 for what joins its neighbour.

    >>> _width("a"), _width("世"), _width("\\u0301")
    (1, 2, 0)
    """
    return get_character_cell_size(char)
