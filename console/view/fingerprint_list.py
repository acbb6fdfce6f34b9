"""A long list of rows with a cursor, of which the widget shows a window."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdeck.console.view.fingerprint_tree import Entry, Place
from specdeck.console.widgets.cells import Cell, Row


@dataclass(frozen=True, slots=True)
class Listing:
    """Where the cursor stands, and from which entry on the list is shown."""

    entries: tuple[Entry, ...] = ()
    cursor: int = 0
    top: int = 0

    @property
    def at(self) -> Entry | None:
        """The entry under the cursor; None in an empty list."""
        return self.entries[self.cursor] if self.entries else None

    def moved(self, by: int, height: int) -> Listing:
        """The cursor further down, or up, and in sight of a window so high."""
        cursor = max(0, min(len(self.entries) - 1, self.cursor + by))
        top = max(min(self.top, cursor), cursor - max(1, height) + 1)
        return replace(self, cursor=cursor, top=max(0, min(top, len(self.entries) - height)))

    def refilled(self, entries: tuple[Entry, ...], height: int) -> Listing:
        """Other entries, with the cursor where it was if that is still there."""
        place = self.at.place if self.at is not None else None
        places = [entry.place for entry in entries]
        cursor = places.index(place) if place in places else self.cursor
        return replace(self, entries=entries, cursor=cursor).moved(0, height)

    def found(self, place: Place, height: int) -> Listing:
        """The cursor on the entry at `place`."""
        places = [entry.place for entry in self.entries]
        to = places.index(place) if place in places else self.cursor
        return self.moved(to - self.cursor, height)

    def rows(self, height: int) -> tuple[Row, ...]:
        """What is to be seen, the cursor marked."""
        shown = self.entries[self.top : self.top + height]
        return tuple(
            _marked(entry.row) if self.top + number == self.cursor else entry.row
            for number, entry in enumerate(shown)
        )


def _marked(row: Row) -> Row:
    first, *rest = row.left
    # Unchanged lines begin with a blank; a sign keeps its place beside the cursor.
    return replace(row, left=(Cell("›", "accent"), replace(first, text=first.text[1:]), *rest))


def moves(page: int) -> dict[str, int]:
    """How far each key goes in a list that shows `page` entries.

    >>> moves(20)["pageup"], moves(20)["down"]
    (-20, 1)
    """
    every = 100_000
    return {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "home": -every, "end": every}
