"""The rule of thumb, exactly."""

from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.parameters import ParameterError, ThresholdParameters
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.threshold import Threshold


def round_of(accepted: int, drafted: int) -> Step:
    return Step(0, 0.0, 1, 1 + drafted, drafted, 1, drafted, accepted, 0.02, 1 + accepted)


@given(
    rounds=st.lists(st.floats(0, 1), max_size=60),
    low=st.integers(1, 8),
    more=st.integers(0, 8),
    threshold=st.floats(0, 1),
    patience=st.integers(1, 5),
)
def test_k_follows_the_rule_as_it_was_written(
    rounds: list[float], low: int, more: int, threshold: float, patience: int
) -> None:
    high = low + more
    rule = Threshold(ThresholdParameters(low, high, threshold, patience, 6), k_max=20)
    k, poor = min(max(6, low), high), 0
    for share in rounds:
        accepted = floor(share * k)
        rule.step(round_of(accepted, k))
        if accepted / k < threshold:
            poor += 1
            if poor >= patience:
                k, poor = max(low, floor(k * 0.75)), 0
        else:
            k, poor = min(high, k + 1), 0
        assert rule.decision.k(1) == k


def test_a_step_that_verified_nothing_is_no_round() -> None:
    rule = Threshold(ThresholdParameters(), k_max=8)
    for accepted in (0, 0):
        rule.step(round_of(accepted, 6))
    rule.step(Step(0, 0.0, 1, 1, 6, 0, 0, 0, 0.02, 1))
    assert rule.step(round_of(0, 6)).k(1) == 4


def test_lengths_above_k_max_are_taken_as_k_max() -> None:
    rule = Threshold(ThresholdParameters(min_draft_length=8, max_draft_length=16), k_max=5)
    assert rule.step(round_of(5, 5)).k(1) == 5


def test_an_engine_without_drafts_has_no_threshold() -> None:
    with pytest.raises(ParameterError):
        Threshold(ThresholdParameters(), k_max=0)


def test_the_reason_says_why_k_moved() -> None:
    rule = Threshold(ThresholdParameters(), k_max=8)
    for _ in range(3):
        decision = rule.step(round_of(1, 6))
    assert str(decision.reason) == (
        "k 6 → 4: 3 rounds in a row below the threshold of 60%, the last accepted 17%"
    )
