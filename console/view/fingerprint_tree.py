"""Facts as a tree to fold and search, with what differs as a diff within it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specdeck.console.widgets.cells import Cell, Row, Tone
from specdeck.console.widgets.format import oneline
from specdeck.engine.fingerprint.compare import Comparison, Difference

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


def tree(facts: Mapping[str, Any], found: Comparison | None = None) -> tuple[Node, ...]:
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


def opened(nodes: Iterable[Node], *, everything: bool = False) -> frozenset[Place]:
    """The branches that are unfolded to begin with: those where something differs."""
    found: set[Place] = set()
    for node in nodes:
        if node.children is not None and (everything or node.differing):
            found |= {node.place, *opened(node.children, everything=everything)}
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
            whole = search and search.lower() in _dotted(node).lower()
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
    if search in _dotted(node).lower():
        return True
    if node.children is not None:
        return any(_matches(child, search) for child in node.children)
    sides = (node.value, node.difference.before if node.difference else None)
    return any(search in said(value).lower() for value in sides)


def _dotted(node: Node) -> str:
    return ".".join(node.place)


def _branch(node: Node, shown: bool) -> Entry:
    indent = "  " * (len(node.place) - 1)
    left = (Cell(f"  {indent}{'▾' if shown else '▸'} "), Cell(node.place[-1], "strong"))
    count = Cell(f"  {node.facts}", "muted")
    right = (Cell(f"± {node.differing} ", "warn"),) if node.differing else ()
    return Entry(node.place, Row((*left, count), right), True, _dotted(node))


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
    text = f"{_dotted(node)} = {said(value)}"
    return Entry(node.place, Row((name, Cell("  "), Cell(said(value), tone))), False, text)


def said(value: Any) -> str:
    """A value on one line; what is not known, or empty, is a dash.

    >>> said(None), said({}), said([1, 2]), said("a\\nb")
    ('–', '–', '[1, 2]', 'a b')
    """
    return "–" if value is None or value == {} else oneline(str(value))
