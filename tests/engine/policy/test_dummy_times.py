"""Dummy steps in the cost model: they tell where nothing was measured, and no longer than that."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.cost import NO_PROMPTS, CostModel, StepTimes
from specdeck.engine.policy.dummy_times import DummyTimes
from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.parameters import Catalogue
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket

MODEL = CostModel(0.010, 0.0002, 0.003, 0.0001)
KS = range(9)
BATCHES = (1, 2, 4, 8, 16)


def calibrated(factor: float = 1.0) -> StepTimes:
    """Times of dummy steps alone, all of them off the truth by one factor."""
    times = StepTimes()
    for batch in BATCHES:
        for k in KS:
            times.add_dummies(bucket(batch), batch, k, [MODEL.seconds(batch, k) * factor] * 4)
    return times


def test_every_shape_is_known_before_the_first_real_step() -> None:
    times = calibrated()
    for batch in BATCHES:
        seconds, errors = times.expect_plain(bucket(batch), batch, 8)
        assert seconds == pytest.approx([MODEL.seconds(batch, k) for k in KS], rel=0.04)
        assert max(errors) < 0.08
    assert times.seconds(bucket(6), 3) == pytest.approx(MODEL.seconds(5.5, 3), rel=0.1)


def test_they_are_no_steps_that_were_measured() -> None:
    times = calibrated()
    assert [times.steps(bucket(4), k) for k in KS] == [0.0] * 9
    assert times.last(bucket(4), 0) is None


@given(st.floats(-0.003, 0.05), st.sampled_from(BATCHES), st.sampled_from(KS), st.sampled_from(KS))
def test_what_real_steps_take_longer_at_one_k_is_added_at_all(
    more: float, batch: int, k: int, other: int
) -> None:
    times, here = calibrated(), bucket(batch)
    for block in range(6):
        times.add(here, batch, k, [MODEL.seconds(batch, k) + more] * 8, t=float(block))
    seconds, _ = times.expect_plain(here, batch, 8)
    wanted = MODEL.seconds(batch, other) + more
    assert seconds[other] == pytest.approx(wanted, rel=0.1)


@given(st.floats(0.6, 1.6))
def test_a_machine_that_changes_its_pace_takes_all_with_it(factor: float) -> None:
    times, here = calibrated(), bucket(4)
    for block in range(200):
        pace = 1.0 if block < 6 else factor
        times.add(here, 4, 3, [MODEL.seconds(4, 3) * pace] * 8, t=float(block))
    assert times.seconds(here, 8) == pytest.approx(MODEL.seconds(4, 8) * factor, rel=0.1)


def test_real_steps_outweigh_dummy_ones_that_are_wrong_of_one_k() -> None:
    times, here = StepTimes(), bucket(4)
    for k in KS:
        wrong = 2.0 if k == 5 else 1.0
        times.add_dummies(here, 4, k, [MODEL.seconds(4, k) * wrong] * 4)
    for block in range(60):
        k = (0, 3, 5)[block % 3]
        times.add(here, 4, k, [MODEL.seconds(4, k)] * 8, t=float(block))
    assert times.seconds(here, 5) == pytest.approx(MODEL.seconds(4, 5), rel=0.03)


def test_dummy_steps_are_compared_with_real_ones_of_the_same_shape() -> None:
    times, here = calibrated(0.9), bucket(8)
    assert times.compare_with_dummies(here, 3) is None
    for block in range(6):
        times.add(here, 8, 3, [MODEL.seconds(8, 3)] * 8, t=float(block))
    found = times.compare_with_dummies(here, 3)
    assert found is not None
    dummy, real = found
    assert dummy / real == pytest.approx(0.9, rel=0.01)
    assert times.compare_with_dummies(here, 4) is None


def test_steps_that_carry_prompts_are_not_held_against_them() -> None:
    times, here = calibrated(), bucket(4)
    times.add(here, 4, 3, [0.5] * 8, t=0.0, prompts=[400] * 8)
    assert times.compare_with_dummies(here, 3) is None
    plain, _ = times.expect(here, 4, 0, NO_PROMPTS)
    laden, _ = times.expect(here, 4, 3, ((1.0, 400),))
    assert laden > plain


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(-0.004, 0.02), st.floats(1, 500)),
        max_size=20,
    )
)
def test_what_is_added_is_the_mean_of_what_each_k_of_the_bucket_says_now(
    said: list[tuple[int, int, float, float]],
) -> None:
    times = DummyTimes()
    now: dict[int, dict[int, tuple[float, float]]] = {}
    for bucket_ in range(4):
        for k in range(4):
            times.add(bucket_, 1, k, log(0.010))
    for bucket_, k, more, steps in said:
        times.compare(bucket_, k, log(0.010 + more), steps)
        now.setdefault(bucket_, {})[k] = (more, min(steps, 64.0))
    means = {
        bucket_: sum(more * steps for more, steps in row.values())
        / sum(steps for _, steps in row.values())
        for bucket_, row in now.items()
    }
    elsewhere = sum(means.values()) / len(means) if means else 0.0
    for bucket_, _, one in times:
        expected = max(0.005, 0.010 + means.get(bucket_, elsewhere))
        assert exp(times.expect(bucket_, one)) == pytest.approx(expected, rel=1e-6)


def test_goodput_settles_in_fewer_steps_when_costs_are_known() -> None:
    def steps_to_best(calibrates: bool) -> int:
        """Steps until k is the best one, of one request whose drafts are seldom accepted."""
        estimates = Estimates(8)
        if calibrates:
            for k in KS:
                estimates.times.add_dummies(0, 1, k, [MODEL.seconds(1, k)] * 4)
        policy = Goodput(Catalogue().goodput, estimates, k=8)
        verified, t = 8, 0.0
        for number in range(1, 2000):
            k = policy.decision.k(1)
            seconds = MODEL.seconds(1, k)
            t += seconds
            one = (number % 2,) + (0,) * 7
            step = Step(number, t, 1, 1 + verified, k, 1 if verified else 0, verified,
                        one[0] if verified else 0, seconds, 1 + (one[0] if verified else 0),
                        one if verified else (0,) * 8, 0, verified, k == verified)  # fmt: skip
            estimates.add(step)
            policy.step(step)
            verified = k
            if policy.choice(0) <= 1 and number > 1:
                return number
        return 2000

    assert steps_to_best(calibrates=True) <= steps_to_best(calibrates=False)
