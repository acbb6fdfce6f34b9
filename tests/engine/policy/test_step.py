"""Batch sizes in their buckets, and the time that passes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.step import Elapsed
from specdeck.engine.policy.table import BOUNDS, BUCKETS, bucket


@given(st.integers(0, 5000))
def test_a_batch_size_lies_in_the_bucket_that_bounds_it(size: int) -> None:
    number = bucket(size)
    assert number == BUCKETS - 1 or size <= BOUNDS[number]
    assert number == 0 or size > BOUNDS[number - 1]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_elapsed_time_never_falls_or_leaps(clock: list[float]) -> None:
    elapsed = Elapsed(leap_s=10)
    readings = [elapsed.at(t) for t in clock]
    assert readings == sorted(readings)
    assert all(b - a <= 10 + 1e-6 for a, b in pairwise(readings))


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=50))
def test_age_takes_every_stretch_forward_in_full(clock: list[float]) -> None:
    elapsed = Elapsed()
    readings = [elapsed.at(t) for t in clock]
    assert readings[-1] == pytest.approx(sum(max(0.0, b - a) for a, b in pairwise(clock)))
