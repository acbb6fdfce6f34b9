"""Rates with their intervals, and corrections for many of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from specdeck.engine.special_functions import special_functions

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many.

    >>> Rate(6, 500).rate
    0.012
    >>> [round(bound, 4) for bound in Rate(6, 500).ci95]
    [0.0044, 0.0259]
    >>> Rate(0, 0).rate is None
    True
    """

    count: int
    of: int

    @property
    def rate(self) -> float | None:
        """The share; None of nothing."""
        return self.count / self.of if self.of else None

    @property
    def ci95(self) -> tuple[float, float]:
        """Clopper and Pearson's interval: the rate lies in it with 95 % confidence at least."""
        return exact_interval(self.count, self.of, CONFIDENCE)

    @property
    def bounds95(self) -> tuple[float, float]:
        """One-sided bounds: the rate is above the first, and below the second, with 95 % each.

        A verdict asks one of the two questions, so these are its measure, not `ci95`.
        """
        return exact_interval(self.count, self.of, 2 * CONFIDENCE - 1)

    def as_json(self) -> dict[str, Any]:
        """Rate and interval, for a report."""
        return {"rate": self.rate, "ci95": list(self.ci95) if self.of else None}


def wilson(count: int, of: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval; everything is possible of nothing.

    Written out, as `scipy.stats` takes two seconds of a busy core to be imported.

    >>> [round(bound, 4) for bound in wilson(0, 200, 0.9)]
    [0.0, 0.0133]
    """
    if not of:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = count + z * z / 2
    spread = z * math.sqrt(count * (of - count) / of + z * z / 4)
    whole = of + z * z
    low = 0.0 if not count else (middle - spread) / whole
    high = 1.0 if count == of else (middle + spread) / whole
    return low, high


def exact_interval(count: int, of: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval, never short of its `confidence`; everything of nothing.

    >>> [round(bound, 4) for bound in exact_interval(0, 200, 0.9)]
    [0.0, 0.0149]
    """
    if not of:
        return 0.0, 1.0
    betaincinv = special_functions().betaincinv
    tail = (1 - confidence) / 2
    low = float(betaincinv(count, of - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - tail)) if count < of else 1.0
    return low, high


def load() -> None:
    """Imports what intervals are computed with: a second of a busy machine and 40 MB, once.

    For a thread of whoever cannot stand still for so long. Raises NoMemory.
    """
    special_functions()


_MOST_EXACT = 20_000
"""Of both rates together; in whole numbers, many more would take minutes."""


def above(rate: Rate, floor: Rate) -> float | None:
    """The probability of so high a `rate` if it were no higher than the `floor`; None of nothing.

    Fisher's exact test, one-sided: `scipy.stats` would do it for two seconds of a busy core and
    90 MB of memory.

    >>> round(above(Rate(5, 200), Rate(0, 200)), 4)
    0.0305
    """
    if not rate.of or not floor.of:
        return None
    exact = rate.of + floor.of <= _MOST_EXACT
    return _above_exactly(rate, floor) if exact else _above_nearly(rate, floor)


def _above_exactly(rate: Rate, floor: Rate) -> float:
    """In whole numbers."""
    rest, met = floor.of, rate.count + floor.count
    # The tables with these margins, from the one that was found to the most extreme one.
    table = math.comb(rate.of, rate.count) * math.comb(rest, floor.count)
    as_high = 0
    for count in range(rate.count, min(rate.of, met) + 1):
        as_high += table
        more, fewer = (rate.of - count) * (met - count), (count + 1) * (rest - met + count + 1)
        table = table * more // fewer
    return as_high / math.comb(rate.of + rest, met)


def _above_nearly(rate: Rate, floor: Rate) -> float:
    """In floating point, to six digits: from what was found away from the likeliest table.

    >>> rate, floor = Rate(60, 5000), Rate(1800, 15000)
    >>> math.isclose(_above_nearly(rate, floor), _above_exactly(rate, floor), rel_tol=1e-6)
    True
    """
    rest, met = floor.of, rate.count + floor.count
    is_high = rate.count * (rate.of + rest) >= rate.of * met
    count, ahead = (rate.count, 1) if is_high else (rate.count - 1, -1)
    total, table, least, most = 0.0, 0.0, max(0, met - rest), min(rate.of, met)
    if least <= count <= most:
        log_table = _log_comb(rate.of, count) + _log_comb(rest, met - count)
        table = math.exp(log_table - _log_comb(rate.of + rest, met))
    while least <= count <= most and table > total * 1e-16:
        total += table
        if is_high:
            table *= (rate.of - count) / (count + 1) * (met - count) / (rest - met + count + 1)
        else:
            table *= count / (rate.of - count + 1) * (rest - met + count) / (met - count + 1)
        count += ahead
    return min(1.0, total) if is_high else max(0.0, 1 - total)


def _log_comb(of: int, count: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)


def p_any(rate: float, calls: int) -> float:
    """The chance that at least one of `calls` differs, where each does with `rate`.

    >>> round(p_any(0.012, 5), 3)
    0.059
    """
    return 1 - (1 - rate) ** calls


def p_any_bounds(rate: Rate, calls: int) -> tuple[float, float]:
    """Between what the chance of `p_any` lies with 95 %, whatever the calls share.

    Calls of a session are about the same things: where they all meet the same fate the chance
    is that of one, and it is never more than the sum of all.

    >>> [round(bound, 3) for bound in p_any_bounds(Rate(6, 500), 5)]
    [0.004, 0.13]
    """
    low, high = rate.ci95
    return low, min(1.0, calls * high)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    order = sorted(range(len(p_values)), key=lambda n: p_values[n])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, n in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[n]))
        adjusted[n] = highest
    return tuple(adjusted)
