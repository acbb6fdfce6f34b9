"""Rates with their intervals, and corrections for many of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many.

    >>> Rate(6, 500).rate
    0.012
    >>> [round(bound, 4) for bound in Rate(6, 500).ci95]
    [0.0055, 0.0259]
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
        """Wilson's interval: the rate lies in it with 95 % confidence."""
        return wilson(self.count, self.of, CONFIDENCE)

    @property
    def bounds95(self) -> tuple[float, float]:
        """One-sided bounds: the rate is above the first, and below the second, with 95 % each.

        A verdict asks one of the two questions, so these are its measure, not `ci95`.
        """
        return wilson(self.count, self.of, 2 * CONFIDENCE - 1)

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


def prompts_wanted(rate: float, threshold: float) -> int | None:
    """How many prompts would tell a true `rate` from `threshold`; None when none would do.

    Wilson's interval excludes the threshold where the score test rejects it, which is
    solved for the number of prompts.

    >>> prompts_wanted(0.0, 0.015), prompts_wanted(0.012, 0.015)
    (178, 4442)
    """
    distance = abs(rate - threshold)
    if distance < threshold / 20:
        return None
    z = NormalDist().inv_cdf(CONFIDENCE)
    return math.ceil(z**2 * threshold * (1 - threshold) / distance**2)


def above(rate: Rate, floor: Rate) -> float | None:
    """The probability of so high a `rate` if it were no higher than the `floor`; None of nothing.

    Fisher's exact test, one-sided.
    """
    if not rate.of or not floor.of:
        return None
    if not rate.count:
        return 1.0
    from scipy.stats import fisher_exact

    table = [[rate.count, rate.of - rate.count], [floor.count, floor.of - floor.count]]
    return float(fisher_exact(table, alternative="greater").pvalue)


def p_any(rate: float, calls: int) -> float:
    """The chance that at least one of `calls` differs, where each does with `rate`.

    >>> round(p_any(0.012, 5), 3)
    0.059
    """
    return 1 - (1 - rate) ** calls


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
