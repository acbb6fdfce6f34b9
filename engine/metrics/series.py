"""The rows of a metrics page by series, and the few ways to add them up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from specdeck.engine.metrics.sample import Histogram


@dataclass(frozen=True, slots=True)
class Row:
    """One line: who it is about, and how much."""

    model: str | None
    engine: str | None
    """The data-parallel engine's index, as text."""
    position: str | None
    bound: str | None
    """A bucket's `le`."""
    value: float

    @classmethod
    def of(cls, labels: dict[str, str], value: float) -> Self:
        """The row with `labels`; raises ValueError for a count below zero."""
        if value < 0:
            raise ValueError(f"a count of {value:g}")
        get = labels.get
        return cls(get("model_name"), get("engine"), get("position"), get("le"), value)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of each series."""

    rows: dict[str, list[Row]]

    def first(self, spellings: Iterable[str]) -> list[Row]:
        """The rows of the first spelling that is there; none when none is."""
        return next((self.rows[name] for name in spellings if name in self.rows), [])

    def of(self, model: str | None) -> Table:
        """What is about `model`, and what is about no model in particular."""
        kept = {
            name: [row for row in rows if row.model in (model, None)]
            for name, rows in self.rows.items()
        }
        return Table({name: rows for name, rows in kept.items() if rows})

    def places(self, name: str) -> set[tuple[str | None, str | None, str | None]]:
        """The models, engines and positions that the series `name` speaks of."""
        return {(row.model, row.engine, row.position) for row in self.rows[name]}


def added(rows: Sequence[Row]) -> float | None:
    """The sum over `rows`; None without any, or when one of them is not a number."""
    return math.fsum(row.value for row in rows) if rows and _finite(rows) else None


def fullest(rows: Sequence[Row]) -> float | None:
    """The largest of `rows`; None without any, or when one of them is not a number."""
    return max(row.value for row in rows) if rows and _finite(rows) else None


def positions(rows: Sequence[Row]) -> tuple[float, ...] | None:
    """The sums for position 0, 1, …; None without any.

    Raises ValueError when a position is missing, be it for one engine only.
    """
    if not rows or not _finite(rows):
        return None
    sums: dict[int, list[float]] = {}
    for row in rows:
        sums.setdefault(int(row.position or ""), []).append(row.value)
    ordered = [sums.get(position, []) for position in range(len(sums))]
    if len({len(values) for values in ordered}) != 1:
        raise ValueError("a position is missing")
    return tuple(math.fsum(values) for values in ordered)


def histogram(rows: Sequence[Row]) -> Histogram | None:
    """The buckets of `rows`, summed over engines; None without any.

    Raises ValueError when an engine's last bucket is missing or counts fall along the
    bounds: both mean that lines were lost.
    """
    if not rows or not _finite(rows):
        return None
    engines: dict[tuple[str | None, str | None], dict[float, float]] = {}
    for row in rows:
        buckets = engines.setdefault((row.model, row.engine), {})
        bound = float(row.bound or "")
        if math.isnan(bound):
            raise ValueError("a histogram has a bound that is no number")
        buckets[bound] = buckets.get(bound, 0.0) + row.value
    bounds = tuple(sorted(next(iter(engines.values()))))
    for buckets in engines.values():
        if math.inf not in buckets:
            raise ValueError("a histogram has no +Inf bucket")
        if tuple(sorted(buckets)) != bounds:
            raise ValueError("a histogram's buckets differ between engines")
    counts = tuple(math.fsum(buckets[bound] for buckets in engines.values()) for bound in bounds)
    if any(later < earlier for earlier, later in pairwise(counts)):
        raise ValueError("a histogram's counts fall along its buckets")
    return Histogram(bounds, counts)


def _finite(rows: Sequence[Row]) -> bool:
    return all(math.isfinite(row.value) for row in rows)
