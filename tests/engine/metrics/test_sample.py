from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.metrics.sample import Histogram, quantile

BOUNDS = (0.1, 0.5, 1.0, math.inf)


def of(*inside: float) -> Histogram:
    """The histogram with so many observations in each bucket."""
    return Histogram(BOUNDS, tuple(sum(inside[: i + 1]) for i in range(len(inside))))


@pytest.mark.parametrize(
    ("histogram", "q", "expected"),
    [
        (of(10, 0, 0, 0), 0.5, 0.05),
        (of(0, 10, 0, 0), 0.5, 0.3),
        (of(5, 5, 0, 0), 0.75, 0.3),
        (of(0, 0, 4, 4), 0.5, 1.0),
        (of(0, 0, 0, 9), 0.5, 1.0),
        (of(1, 0, 0, 9), 0.95, 1.0),
        (of(0, 0, 7, 0), 0.0, 0.0),
        (of(0, 0, 7, 0), 1.0, 1.0),
    ],
)
def test_quantiles_are_prometheus_own(histogram: Histogram, q: float, expected: float) -> None:
    assert quantile(histogram, q) == pytest.approx(expected)


def test_no_observation_has_no_quantile() -> None:
    assert quantile(of(0, 0, 0, 0), 0.5) is None
    assert quantile(Histogram((math.inf,), (5.0,)), 0.5) is None
    assert quantile(Histogram((), ()), 0.5) is None


def test_a_quantile_outside_the_range_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile(of(1, 1, 1, 1), 95)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(0, 1), st.floats(0, 1))
def test_quantiles_rise_and_stay_inside_the_bounds(
    inside: list[int], one: float, other: float
) -> None:
    low, high = (quantile(of(*inside), q) for q in sorted((one, other)))
    if sum(inside) == 0:
        assert low is None
        return
    assert low is not None
    assert high is not None
    assert 0 <= low <= high + 1e-9 <= 1.0 + 1e-9
