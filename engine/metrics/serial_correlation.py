"""Means of figures that are alike from one moment to the next: a request spans several of them, so
that they are fewer pieces of evidence than they are figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean


def inflate(*parts: Sequence[float]) -> float:
    """By how much more the variance of a mean is than that of as many independent figures.

    1 + 2 times the correlations of neighbours, of their neighbours and so on, as long as they are
    above 0 (Geyer, Practical Markov Chain Monte Carlo, 1992). Each part, in the order of time, has
    a level of its own; at most the share of a part's figures that leaves two independent ones.

    >>> inflate([1.0, 2.0] * 9), inflate([1.0] * 9 + [2.0] * 9) > 4
    (1.0, True)
    """
    means = [(part, fmean(part)) for part in parts if part]
    left = [[value - mean for value in part] for part, mean in means]
    variance = sum(value * value for part in left for value in part)
    longest = max(map(len, left), default=0)
    if variance <= 0 or longest < _FEWEST:
        return 1.0
    found = 1.0
    for lag in range(1, longest // 2):
        alike = sum(a * b for part in left for a, b in zip(part, part[lag:], strict=False))
        if alike <= 0:
            break
        found += 2 * alike / variance
    return min(found, longest / 2)


_FEWEST = 3


def variance_of_mean(part: Sequence[float], inflation: float) -> float:
    """Of figures whose mean varies by `inflation` times as much as if they were independent."""
    count = len(part)
    mean = fmean(part)
    squares = sum((value - mean) ** 2 for value in part)
    # The mean was taken from the values themselves, which lie the nearer to it.
    return squares / max(1.0, count - inflation) * inflation / count


def error_of_difference(before: Sequence[float], after: Sequence[float]) -> float:
    """The standard error of the difference of two means, each of figures in the order of time."""
    inflation = inflate(before, after)
    return math.sqrt(sum(variance_of_mean(part, inflation) for part in (before, after)))
