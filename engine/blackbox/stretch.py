"""Rows of a black box one after the other, of a block or of what is in no block yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specdeck.engine.blackbox.block import Block
from specdeck.engine.blackbox.row import Damaged, Places, Row, find_places, join, read_sample
from specdeck.engine.blackbox.summary import Figures, figures_of
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample


class Stretch:
    """Rows one after the other, of a block or of those that are in none yet."""

    def __init__(self, first_n: int, base: int, block: Block | None, rows: Sequence[Row] = ()):
        self.first_n = first_n
        """The number of the first row that is its own."""
        self.base = base
        """How many rows before it are there for the first window."""
        self._block = block
        self._rows = tuple(rows)
        self.times = block.times if block is not None else tuple(row.t for row in rows)

    @property
    def indices(self) -> range:
        """Where its own rows are."""
        return range(self.base, len(self.times))

    @property
    def last_n(self) -> int:
        """The number of the last row."""
        return self.first_n + len(self.times) - self.base - 1

    def row(self, index: int) -> Row:
        """One row."""
        return self._rows[index] if self._block is None else self._block.row(index)

    def template(self, index: int) -> str:
        """The template of one row."""
        return self._rows[index].template if self._block is None else self._block.template(index)

    def reading(self, index: int, url: str) -> Reading:
        """One row as its reading, with its window."""
        return join(self.row(index), self.row(index - 1) if index else None, url)

    def has_restart(self, first: int, last: int) -> bool:
        """Whether one of these rows says that the engine was restarted. Raises Damaged."""
        return any(find_places(self.template(i)).restarted for i in range(first, last + 1))

    def figures(self) -> list[Figures]:
        """What charts need of each row of its own."""
        if self._block is None:
            return [_figures(self._rows[i], self._rows[i - 1] if i else None) for i in self.indices]
        places = [find_places(self.template(i)) for i in range(len(self.times))]
        wanted = sorted({at for one in places for at in _list_places(one)})
        columns = {at: self._block.numbers(at) for at in wanted}
        found = []
        for i in self.indices:
            now, then = places[i], places[i - 1] if i else _NOWHERE
            found.append(_figures_at(self.times[i], now, then, columns, i))
        return found


_NOWHERE: Final = Places(False, False, False, None, None)


def _list_places(places: Places) -> list[int]:
    named = (
        places.at, places.generated, places.drafted, places.accepted, places.drafts, places.first,
    )  # fmt: skip
    return [at for at in named if at is not None]


def _figures(row: Row, before: Row | None) -> Figures:
    older = _NOWHERE if before is None else find_places(before.template)
    numbers = () if before is None else before.numbers
    return figures_of(row.t, find_places(row.template), row.numbers, older, numbers)


def _figures_at(
    t: float, now: Places, then: Places, columns: Mapping[int, Sequence[float]], i: int
) -> Figures:
    """The same of a row whose numbers lie in columns."""
    if not now.joined or not then.up:
        return Figures(t)

    def rise(at: int | None, before: int | None) -> float | None:
        if at is None or before is None:
            return None
        found = columns[at][i] - columns[before][i - 1]
        return found if math.isfinite(found) else None

    return Figures(
        t,
        rise(now.at, then.at),
        rise(now.generated, then.generated),
        rise(now.drafted, then.drafted),
        rise(now.accepted, then.accepted),
        rise(now.drafts, then.drafts),
        rise(now.first, then.first),
    )


@dataclass(frozen=True, slots=True)
class StretchRow:
    """One row of a stretch."""

    stretch: Stretch
    index: int

    @property
    def n(self) -> int:
        """Its number in the file."""
        return self.stretch.first_n + self.index - self.stretch.base

    @property
    def places(self) -> Places:
        """What its template says."""
        return find_places(self.stretch.template(self.index))

    def sample(self) -> Sample | None:
        """Its sample; None where that is damaged."""
        try:
            return read_sample(self.stretch.row(self.index))
        except Damaged:
            return None
