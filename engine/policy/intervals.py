"""Means of blocks of time, compared: with what confidence is one rate above another?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt
from statistics import NormalDist, fmean, variance

from specdeck.engine.protocol.tuning import Interval

Work = tuple[float, float]
"""What was done and in how long: the two parts of a rate."""

_MOST_LOG = 20.0
"""Half of an interval on the log scale at most: beyond a factor of 10⁸ nothing is said."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its confidence interval."""

    value: float
    low: float
    high: float
    blocks: int


def mean(blocks: Sequence[float], *, confidence: float = 0.95) -> Mean | None:
    """The mean of `blocks`; None of fewer than two.

    >>> m = mean([10.0, 11.0, 9.0, 10.0, 10.0, 10.0])
    >>> m.value, 9 < m.low < 10 < m.high < 11
    (10.0, True)
    """
    if len(blocks) < 2:
        return None
    half = _t(confidence, len(blocks) - 1) * sqrt(_error2(blocks))
    value = fmean(blocks)
    return Mean(value, value - half, value + half, len(blocks))


def ratio(
    tops: Sequence[float], bottoms: Sequence[float], *, confidence: float = 0.95
) -> Mean | None:
    """The sum of `tops` over that of `bottoms`, such as tokens per second; None of fewer than two.

    The standard error is that of the ratio's first-order (Taylor) expansion: of the residuals
    top - ratio · bottom, over the mean of `bottoms` (Cochran, Sampling Techniques, 3rd ed.,
    section 6.4; Särndal, Swensson and Wretman, Model Assisted Survey Sampling, section 5.5).
    So the interval is of the value itself and holds it; nothing here can be below 0.

    >>> slow, fast = (10.0, 1.0), (90.0, 1.5)
    >>> found = ratio(*zip(slow, fast, slow, fast, strict=True))
    >>> found.value, found.low < found.value < found.high
    (40.0, True)
    """
    below = sum(bottoms)
    if len(tops) < 2 or below <= 0:
        return None
    value = sum(tops) / below
    left = [top - value * bottom for top, bottom in zip(tops, bottoms, strict=True)]
    half = _t(confidence, len(tops) - 1) * sqrt(_error2(left)) * len(tops) / below
    return Mean(value, max(0.0, value - half), value + half, len(tops))


def gain(
    before: Mapping[int, Work], after: Mapping[int, Work], *, confidence: float = 0.95
) -> Interval | None:
    """What `after`'s ratio of sums is above `before`'s; None of fewer than two rounds of either.

    Both are by round. The interval is that of the ratio's logarithm, to which each round adds
    the difference of its two linearised residuals (see `ratio`): what a round does to both
    sides cancels out, and no end is below -100 %.

    >>> base = {0: (100.0, 1.0), 1: (140.0, 1.0), 2: (70.0, 1.0)}
    >>> found = gain(base, {0: (150.0, 1.0), 1: (209.0, 1.0), 2: (106.0, 1.0)})
    >>> round(found.value, 3), found.sign
    (0.5, 1)
    """
    fewest = min(len(before), len(after))
    if fewest < 2 or min(sum(w[i] for w in side.values())
                         for side in (before, after) for i in (0, 1)) <= 0:  # fmt: skip
        return None
    old, new = _shares(before), _shares(after)
    rounds = sorted(old.keys() | new.keys())
    moved = [(new.get(number, 0.0) - old.get(number, 0.0)) * len(rounds) for number in rounds]
    half = min(_t(confidence, fewest - 1) * sqrt(_error2(moved)), _MOST_LOG)
    middle = log(rate(after) / rate(before))
    low, value, high = (exp(middle + side) - 1 for side in (-half, 0.0, half))
    return Interval(value, low, high)


def rate(work: Mapping[int, Work]) -> float:
    """The ratio of sums over all rounds."""
    return sum(top for top, _ in work.values()) / sum(bottom for _, bottom in work.values())


def _shares(work: Mapping[int, Work]) -> dict[int, float]:
    """What each round moves the logarithm of the ratio of sums, to the first order."""
    overall, whole = rate(work), sum(top for top, _ in work.values())
    return {number: (top - overall * bottom) / whole for number, (top, bottom) in work.items()}


def change(
    before: Sequence[float], after: Sequence[float], *, confidence: float = 0.95
) -> Interval | None:
    """What `after` is above `before`, by Welch's interval; None of fewer than two blocks.

    Blocks of one engine resemble their neighbours, so each side's error is widened by its
    correlation from block to block.

    >>> before, after = [10, 11, 9, 10, 10, 11, 9], [12, 13, 11, 12, 12, 13, 11]
    >>> change(before, after).sign, change(before, before).sign
    (1, 0)
    """
    if len(before) < 2 or len(after) < 2:
        return None
    base = fmean(before)
    if base <= 0:
        return None
    left, right = _error2(before), _error2(after)
    total = left + right
    if not total:
        value = fmean(after) / base - 1
        return Interval(value, value, value)
    freedom = total**2 / (left**2 / (len(before) - 1) + right**2 / (len(after) - 1))
    half = _t(confidence, freedom) * sqrt(total) / base
    value = fmean(after) / base - 1
    return Interval(value, max(min(-1.0, value), value - half), value + half)


def _error2(blocks: Sequence[float]) -> float:
    """The squared standard error of the mean, neighbours taken to be alike as they are."""
    spread = variance(blocks)
    if not spread:
        return 0.0
    middle = fmean(blocks)
    products = [(a - middle) * (b - middle) for a, b in pairwise(blocks)]
    alike = min(0.9, max(0.0, sum(products) / (spread * (len(blocks) - 1))))
    return spread / len(blocks) * (1 + alike) / (1 - alike)


def _t(confidence: float, freedom: float) -> float:
    """Student's quantile, by its expansion around the normal one.

    >>> round(_t(0.95, 10), 2), round(_t(0.95, 1e6), 2)
    (2.23, 1.96)
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    n = max(freedom, 1.0)
    first = (z**3 + z) / (4 * n)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return z + first + second + third
