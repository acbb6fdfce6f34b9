"""How sudden a fall was: a step down within seconds is another fault than a slow decay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specdeck.engine.blackbox.falls import Fall

NEAR_S: Final = 90.0
"""Seconds on each side of a fall that its onset is looked for in."""
_FEWEST_POINTS: Final = 8
"""Of a figure on each side of a fall."""
_WIDTHS_S: Final = (0.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0)
_MUCH_BETTER: Final = 0.95
"""Of what a quicker fall leaves unexplained: a slower one that leaves more is none."""
AT_ONCE_S: Final = 5.0
"""A fall within so many seconds is a sudden one."""


@dataclass(frozen=True, slots=True)
class Point:
    """A figure over a short time, and how much it weighs."""

    start: float
    """Unix time, seconds; so is `end`."""
    end: float
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class Onset:
    """How long a figure took to fall."""

    seconds: float
    """0 for a step down; at most so long."""

    @property
    def is_sudden(self) -> bool:
        """Whether it fell at once, as far as readings of a second tell."""
        return self.seconds <= AT_ONCE_S


def find_onset(points: Sequence[Point], fall: Fall) -> Onset | None:
    """The ramp from one level to a lower one that fits the figure around a fall best, and of those
    that fit about as well the quickest; None of too few points.

    >>> points = [Point(t, t + 1, 0.7 if t < 30 else 0.2, 1) for t in map(float, range(60))]
    >>> find_onset(points, Fall("acceptance", 28.0, 0.7, 0.2))
    Onset(seconds=0.0)
    """
    near = [
        one for one in points
        if fall.t - NEAR_S <= one.start and one.end <= fall.t + NEAR_S and one.weight > 0
    ]  # fmt: skip
    earlier = sum(one.end <= fall.t for one in near)
    if min(earlier, len(near) - earlier) < _FEWEST_POINTS:
        return None
    best: tuple[float, Onset] | None = None
    for seconds in _WIDTHS_S:
        found = min(
            (_misfit(near, one.start, seconds) for one in near
             if abs(one.start + seconds / 2 - fall.t) <= 10.0 + seconds / 2),
            default=None,
        )  # fmt: skip
        if found is not None and (best is None or found < _MUCH_BETTER * best[0]):
            best = found, Onset(seconds)
    return None if best is None else best[1]


def _misfit(points: Sequence[Point], start: float, seconds: float) -> float:
    """What a ramp that begins at `start` leaves of the squares; infinite for one that rises."""
    rows = [(_place(one, start, seconds), one.value, one.weight) for one in points]
    whole = sum(weight for _, _, weight in rows)
    mean_x = sum(weight * x for x, _, weight in rows) / whole
    mean_y = sum(weight * y for _, y, weight in rows) / whole
    spread = sum(weight * (x - mean_x) ** 2 for x, _, weight in rows)
    slope = sum(weight * (x - mean_x) * (y - mean_y) for x, y, weight in rows)
    if spread <= 0 or slope >= 0:
        return math.inf
    slope /= spread
    return sum(w * (y - mean_y - slope * (x - mean_x)) ** 2 for x, y, w in rows)


def _place(point: Point, start: float, seconds: float) -> float:
    """How far down the ramp a point lies, from 0 to 1."""
    if seconds <= 0:
        return float(point.start >= start)
    return min(1.0, max(0.0, ((point.start + point.end) / 2 - start) / seconds))
