"""Steps in their order, batch sizes in their buckets, and the time that passes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.step import Elapsed, StepOrder
from specdeck.engine.policy.table import BOUNDS, BUCKETS, bucket


def test_a_step_verifies_what_the_one_before_it_drafted() -> None:
    order = StepOrder()
    found = [order.follow(step, k) for step, k in enumerate((3, 3, 5, 5))]
    assert [verified for verified, _ in found] == [0, 3, 3, 5]
    assert [settled for _, settled in found] == [False, True, False, True]


def test_an_asynchronous_engine_settles_a_step_later() -> None:
    order = StepOrder(settle=2)
    found = [order.follow(step, k) for step, k in enumerate((3, 3, 3, 5, 5, 5))]
    assert [settled for _, settled in found] == [False, False, True, False, False, True]


def test_another_engine_does_not_verify_the_drafts_of_the_first() -> None:
    order = StepOrder()
    order.follow(9, 3)
    assert order.follow(1, 3) == (0, False)


def test_steps_that_another_hand_steered_leave_no_k_behind() -> None:
    order = StepOrder()
    order.follow(9, 3)
    assert order.follow(11, 3) == (3, True)
    assert order.follow(500, 3) == (0, False)


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
