"""What a record of the plugin says of a step."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.batches import BOUNDS, BUCKETS, bucket
from specdeck.engine.policy.elapsed import Elapsed
from specdeck.engine.policy.observed import Observer


def record(step: int, k: int) -> dict[str, Any]:
    return {
        "step": step,
        "t": step * 0.02,
        "requests": 1,
        "k": k,
        "drafts": 1,
        "drafted": k,
        "accepted_per_position": (),
        "seconds": 0.02,
        "committed": 1,
        "prefill": 0,
    }


def test_a_step_verifies_what_the_one_before_it_drafted() -> None:
    observer = Observer()
    seen = [observer.see(record(step, k)) for step, k in enumerate((3, 3, 5, 5))]
    assert [s.verified for s in seen] == [0, 3, 3, 5]
    assert [s.settled for s in seen] == [False, True, False, True]


def test_an_asynchronous_engine_settles_a_step_later() -> None:
    observer = Observer(settle=2)
    seen = [observer.see(record(step, k)) for step, k in enumerate((3, 3, 3, 5, 5, 5))]
    assert [s.settled for s in seen] == [False, False, True, False, False, True]


def test_another_engine_does_not_verify_the_drafts_of_the_first() -> None:
    observer = Observer()
    observer.see(record(9, 3))
    assert observer.see(record(1, 3)).verified == 0


def test_steps_that_another_hand_steered_leave_no_k_behind() -> None:
    observer = Observer()
    observer.see(record(9, 3))
    assert observer.see(record(11, 3)).verified == 3
    assert observer.see(record(500, 3)).verified == 0


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
