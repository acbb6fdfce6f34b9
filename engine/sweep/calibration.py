"""Which dummy steps a calibration makes, in which order, and what they came to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

STEPS = 4
"""Dummy steps of one shape in each round: their median counts."""
MOST_KS = 9
_USUAL_KS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Where there are more k's than MOST_KS: what a step costs between two of them is in a line."""
TRUE = 0.15
"""The share by which dummy steps may differ from real ones without a word."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of a calibration: every batch size at every k."""

    batches: tuple[int, ...]
    ks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.batches) * len(self.ks)

    def order(self, random: Random) -> Iterator[tuple[int, int]]:
        """Every shape once, in random order: a machine that drifts slows none of them alone.

        >>> sorted(Shapes((1, 2), (0, 3)).order(Random(1)))
        [(1, 0), (1, 3), (2, 0), (2, 3)]
        """
        every = [(batch, k) for batch in self.batches for k in self.ks]
        random.shuffle(every)
        yield from every

    def __str__(self) -> str:
        """The shapes in words.

        >>> str(Shapes((1, 2, 4), (0, 1, 5)))
        '1 to 4 requests, k 0 to 5'
        """
        return f"{self.batches[0]} to {self.batches[-1]} requests, k {self.ks[0]} to {self.ks[-1]}"


def choose_batches(seats: int) -> tuple[int, ...]:
    """The powers of two up to the engine's largest batch, and that one.

    >>> choose_batches(24), choose_batches(1)
    ((1, 2, 4, 8, 16, 24), (1,))
    """
    found = [1]
    while 2 * found[-1] <= seats:
        found.append(2 * found[-1])
    return tuple(found) if found[-1] == seats else (*found, seats)


def choose_ks(able: Sequence[int]) -> tuple[int, ...]:
    """All k's of an engine, or some of many.

    >>> choose_ks(range(6)), choose_ks(range(1, 21))
    ((0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 8, 12, 16, 20))
    """
    every = tuple(sorted(able))
    if len(every) <= MOST_KS:
        return every
    return tuple(k for k in every if k in _USUAL_KS or k == every[-1])


@dataclass(slots=True)
class ShapeTime:
    """What one shape came to."""

    batch: int
    k: int
    seconds: list[float] = field(default_factory=list)
    """Of each dummy step."""
    real_s: float | None = None
    """What real steps of the shape take, by the engine's word; None where it knows of none."""

    @property
    def median(self) -> float | None:
        """Of the dummy steps, seconds; None without any."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def ratio(self) -> float | None:
        """What dummy steps take of what real ones do; None where either is not known."""
        median = self.median
        return median / self.real_s if median and self.real_s else None

    def as_json(self) -> dict[str, Any]:
        """One of the `shapes` of `sweep --calibrate --json`."""
        return {
            "batch": self.batch,
            "k": self.k,
            "steps": len(self.seconds),
            "ms": None if self.median is None else round(self.median * 1e3, 3),
            "real_ms": None if self.real_s is None else round(self.real_s * 1e3, 3),
        }


@dataclass(frozen=True, slots=True)
class Truth:
    """Dummy steps held against real ones of the same shapes."""

    ratio: float
    """What dummy steps take of what real ones do: the median over the shapes."""
    low: float
    high: float
    shapes: int

    @property
    def differs(self) -> bool:
        """Whether they are further apart than TRUE."""
        return abs(self.ratio - 1) > TRUE

    def as_json(self) -> dict[str, Any]:
        """The `against_real` of `sweep --calibrate --json`."""
        low, high = round(self.low, 3), round(self.high, 3)
        return {"ratio": round(self.ratio, 3), "range": [low, high], "shapes": self.shapes}


def compare(times: Iterable[ShapeTime]) -> Truth | None:
    """How true dummy steps are, as far as the engine has seen real ones; None where it has not.

    >>> compare([ShapeTime(1, 0, [0.9], 1.0), ShapeTime(1, 3, [2.0], 2.0), ShapeTime(8, 3, [3.0])])
    Truth(ratio=0.95, low=0.9, high=1.0, shapes=2)
    """
    ratios = [ratio for each in times if (ratio := each.ratio) is not None]
    if not ratios:
        return None
    return Truth(statistics.median(ratios), min(ratios), max(ratios), len(ratios))
