"""Facts as a tree to fold and search, with what differs as a diff within it: pure, no Textual."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdeck.console.widgets.cells import Cell, Row, Tone, heading
from specdeck.engine.fingerprint.compare import Comparison, Difference
from specdeck.engine.text import oneline

Place = tuple[str, ...]

CONTEXT = 2
"""Unchanged neighbours of a change that are shown beside it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A branch, or a fact."""

    place: Place
    children: tuple[Node, ...] | None = None
    """None for a fact."""
    value: Any = None
    difference: Difference | None = None
    facts: int = 1
    """Below and with it."""
    differing: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the list."""

    place: Place
    row: Row
    branch: bool = False
    text: str = ""
    """The whole of it, for the place where it is read in full."""


def build_tree(facts: Mapping[str, Any], found: Comparison | None = None) -> tuple[Node, ...]:
    """The facts, and those that the other side alone has."""
    before = found.before.facts if found is not None else {}
    known = {} if found is None else {one.fact: one for one in found.differences}
    return tuple(_nodes(before, facts, known, ()))


def _nodes(
    before: Mapping[str, Any], after: Mapping[str, Any], known: Mapping[str, Difference], at: Place
) -> Iterator[Node]:
    for name in (*after, *(name for name in before if name not in after)):
        place = (*at, name)
        old, new = before.get(name), after.get(name)
        was, now = (side if isinstance(side, Mapping) else {} for side in (old, new))
        if was or now:
            children = tuple(_nodes(was, now, known, place))
            if children:
                facts = sum(child.facts for child in children)
                differing = sum(child.differing for child in children)
                yield Node(place, children, facts=facts, differing=differing)
        difference = known.get(".".join(place))
        if difference is not None or (name in after and not (was or now)):
            yield Node(place, None, new, difference, 1, difference is not None)


def branches(nodes: Iterable[Node], *, everything: bool = False) -> frozenset[Place]:
    """The branches where something differs, which are unfolded to begin with; or all of them."""
    found: set[Place] = set()
    for node in nodes:
        if node.children is not None and (everything or node.differing):
            found |= {node.place, *branches(node.children, everything=everything)}
    return frozenset(found)


def entries(
    nodes: Iterable[Node],
    unfolded: Collection[Place],
    *,
    search: str = "",
    changes: bool = False,
    quiet: bool = False,
) -> tuple[Entry, ...]:
    """The lines that are to be seen.

    `search` keeps facts that it is a part of; `changes` keeps what differs and its
    neighbours; `quiet` mutes what is the same on both sides.
    """
    found: list[Entry] = []
    for node in _near(tuple(nodes)) if changes else nodes:
        if search and not _matches(node, search.lower()):
            continue
        if node.children is None:
            found += _fact(node, quiet)
            continue
        shown = bool(search) or changes or node.place in unfolded
        found.append(_branch(node, shown))
        if shown:
            whole = search and search.lower() in _full_name(node).lower()
            below = "" if whole else search
            found += entries(node.children, unfolded, search=below, changes=changes, quiet=quiet)
    return tuple(found)


def _near(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """What differs, and the facts beside it."""
    near = {
        i + by for i, n in enumerate(nodes) if n.differing for by in range(-CONTEXT, CONTEXT + 1)
    }
    for number, node in enumerate(nodes):
        if node.differing or (number in near and node.children is None):
            yield node


def _matches(node: Node, search: str) -> bool:
    if search in _full_name(node).lower():
        return True
    if node.children is not None:
        return any(_matches(child, search) for child in node.children)
    sides = (node.value, node.difference.before if node.difference else None)
    return any(search in format_value(value).lower() for value in sides)


def _full_name(node: Node) -> str:
    return ".".join(node.place)


def _branch(node: Node, shown: bool) -> Entry:
    indent = "  " * (len(node.place) - 1)
    left = (Cell(f"  {indent}{'▾' if shown else '▸'} "), Cell(node.place[-1], "strong"))
    count = Cell(f"  {node.facts}", "muted")
    right = (Cell(f"± {node.differing} ", "warn"),) if node.differing else ()
    return Entry(node.place, Row((*left, count), right), True, _full_name(node))


def _fact(node: Node, quiet: bool) -> Iterator[Entry]:
    one = node.difference
    if one is None:
        yield _line(node, node.value, " ", "muted" if quiet else "plain")
        return
    if one.kind != "added":
        yield _line(node, one.before, "−", "bad")
    if one.kind != "removed":
        yield _line(node, one.after, "+", "good")


def _line(node: Node, value: Any, sign: str, tone: Tone) -> Entry:
    indent = "  " * len(node.place)
    name = Cell(f" {sign}{indent}{node.place[-1]}", tone if sign != " " else "muted")
    text = f"{_full_name(node)} = {format_value(value)}"
    return Entry(node.place, Row((name, Cell("  "), Cell(format_value(value), tone))), False, text)


def format_value(value: Any) -> str:
    """A value on one line; what is not known, or empty, is a dash.

    >>> format_value(None), format_value({}), format_value([1, 2]), format_value("a\\nb")
    ('–', '–', '[1, 2]', 'a b')
    """
    return "–" if value is None or value == {} else oneline(str(value))


def _mark(row: Row) -> Row:
    first, *rest = row.left
    # Unchanged lines begin with a blank; a sign keeps its place beside the cursor.
    return replace(row, left=(Cell("›", "accent"), replace(first, text=first.text[1:]), *rest))


def key_distances(page: int) -> dict[str, int]:
    """How far each key goes in a list that shows `page` entries.

    >>> key_distances(20)["pageup"], key_distances(20)["down"]
    (-20, 1)
    """
    every = 100_000
    pages = {"pageup": -page, "pagedown": page}
    return {"up": -1, "down": 1, **pages, "home": -every, "ctrl+end": every}


@dataclass(slots=True)
class FactsList:
    """The facts on the screen: which are unfolded, searched for, and under the cursor."""

    nodes: tuple[Node, ...] = ()
    comparison: Comparison | None = None
    height: int = 1
    """Entries that can be seen at once."""
    search: str = ""
    """What an entry must have in it."""
    _entries: tuple[Entry, ...] = ()
    _cursor: int = 0
    _top: int = 0
    """The first entry that is to be seen."""
    _unfolded: frozenset[Place] = frozenset()
    _changes_alone: bool = False

    @property
    def at(self) -> Entry | None:
        """The entry under the cursor; None in an empty list."""
        return self._entries[self._cursor] if self._entries else None

    def show(self, facts: Mapping[str, Any], comparison: Comparison | None) -> None:
        """Show other facts; branches with a difference are unfolded."""
        self.comparison = comparison
        self.nodes = build_tree(facts, comparison)
        self._unfolded |= branches(self.nodes)
        self._refill()

    def search_for(self, text: str) -> None:
        """Show what has `text` in it; everything for the empty text."""
        self.search = text.strip()
        self._refill()

    def move(self, key: str) -> None:
        """The cursor as a key moves it."""
        self._move_by(key_distances(self.height)[key])

    def fold(self) -> None:
        """Fold or unfold the branch under the cursor; from a fact, fold its branch."""
        if (at := self.at) is None:
            return
        place = at.place if at.branch else at.place[:-1]
        self._unfolded ^= {place}
        self._refill(place)

    def unfold(self) -> None:
        """Unfold everything, or fold everything."""
        every = branches(self.nodes, everything=True)
        self._unfolded = frozenset() if every <= self._unfolded else every
        self._refill()

    def toggle_changes(self) -> None:
        """Show what differs alone, or every fact."""
        self._changes_alone = not self._changes_alone
        self._refill()

    def rows(self) -> tuple[Row, ...]:
        """What is to be seen, the cursor marked."""
        self._move_by(0)
        shown = self._entries[self._top : self._top + self.height]
        return tuple(
            _mark(entry.row) if self._top + number == self._cursor else entry.row
            for number, entry in enumerate(shown)
        )

    def heading(self) -> Row:
        """How many facts there are and differ, and what is searched for."""
        facts = sum(node.facts for node in self.nodes)
        differing = sum(node.differing for node in self.nodes)
        cells = [Cell(f"{facts} facts", "muted")]
        if self.comparison is not None:
            cells.append(Cell(f" · {differing} differ", "warn" if differing else "muted"))
        kind = "changes" if self._has_changes_alone else "facts"
        return heading(f"{kind} with {self.search!r}" if self.search else kind, *cells)

    @property
    def _has_changes_alone(self) -> bool:
        return self._changes_alone and self.comparison is not None

    def _refill(self, place: Place | None = None) -> None:
        """Other entries, with the cursor at `place`, or where it was, if that is still there."""
        if place is None and self.at is not None:
            place = self.at.place
        self._entries = entries(
            self.nodes,
            self._unfolded,
            search=self.search,
            changes=self._has_changes_alone,
            quiet=self.comparison is not None,
        )
        places = [entry.place for entry in self._entries]
        self._cursor = places.index(place) if place in places else self._cursor
        self._move_by(0)

    def _move_by(self, distance: int) -> None:
        """The cursor so many entries further down, and in sight."""
        count, height = len(self._entries), self.height
        self._cursor = max(0, min(count - 1, self._cursor + distance))
        top = max(min(self._top, self._cursor), self._cursor - height + 1)
        self._top = max(0, min(top, count - height))
