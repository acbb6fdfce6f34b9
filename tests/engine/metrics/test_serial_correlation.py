"""How sure a mean is of figures that are alike from one moment to the next."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, pstdev

import pytest

from specdeck.engine.metrics.serial_correlation import (
    error_of_difference,
    inflate,
    variance_of_mean,
)


def figures(random: Random, count: int, memory: float) -> list[float]:
    """An autoregressive series of variance 1."""
    found, value = [], random.gauss(0, 1)
    for _ in range(count):
        found.append(value)
        value = memory * value + math.sqrt(1 - memory**2) * random.gauss(0, 1)
    return found


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
def test_the_error_is_what_differences_show(memory: float) -> None:
    """Against the spread of many differences of two means of forty figures: a quarter too little at
    most, where neighbours are very much alike."""
    random = Random(7)
    pairs = [(figures(random, 40, memory), figures(random, 40, memory)) for _ in range(400)]
    seen = pstdev(fmean(before) - fmean(after) for before, after in pairs)
    told = fmean(error_of_difference(before, after) for before, after in pairs)
    assert 0.7 * seen < told < 1.3 * seen
    plain = fmean(
        math.sqrt(variance_of_mean(before, 1.0) + variance_of_mean(after, 1.0))
        for before, after in pairs
    )
    assert (plain < 0.6 * seen) is (memory > 0)


@pytest.mark.parametrize("parts", [[], [[]], [[1.0], [2.0]], [[1.0] * 9, [3.0] * 9]])
def test_too_little_and_equal_figures_inflate_nothing(parts: list[list[float]]) -> None:
    assert inflate(*parts) == 1.0
