"""Parameters that make no sense are refused with the reason."""

from typing import Any

import pytest

from specdeck.engine.policy import parameters as p
from specdeck.engine.policy.parameters import read_orchestration


@pytest.mark.parametrize(
    ("cls", "given", "reason"),
    [
        (
            p.ThresholdParameters,
            {"min_draft_length": 8, "max_draft_length": 4},
            "min_draft_length=8 is more than max_draft_length=4",
        ),
        (p.ThresholdParameters, {"draft_acceptance_threshold": 1.5}, "not between 0 and 1"),
        (p.ThresholdParameters, {"draft_acceptance_threshold": "high"}, "'high' is not a number"),
        (
            p.ThresholdParameters,
            {"draft_acceptance_threshold": float("nan")},
            "nan is not a number",
        ),
        (p.ThresholdParameters, {"draft_acceptance_threshold": 10**400}, "not between 0 and 1"),
        (p.ThresholdParameters, {"fallback_after_low_acceptance": 0}, "less than 1"),
        (p.ThresholdParameters, {"min_draft_length": True}, "True is not a whole number"),
        (p.ThresholdParameters, {"speed": 1}, "no parameter 'speed': there are draft_acceptance"),
        (p.GoodputParameters, {"min_draft_length": 5, "max_draft_length": 2}, "is more than"),
        (p.GoodputParameters, {"explore": 0.9}, "not between 0 and 0.2"),
        (p.BreakerParameters, {"acceptance_floor": 1.2}, "not between 0 and 1"),
        (
            p.BreakerParameters,
            {"cooldown_s": 60, "cooldown_max_s": 10},
            "is more than cooldown_max_s=10",
        ),
        (p.BreakerParameters, {"gain": -0.5}, "would close on what opens it"),
        (p.TrialParameters, {"seconds": 2.0}, "fewer than 5 blocks"),
        (p.TrialParameters, {"keep_inconclusive": 1}, "neither true nor false"),
    ],
)
def test_nonsense_is_refused_with_the_reason(cls: type, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(p.ParameterError, match=reason):
        p.parameters(cls, given)


def test_what_is_not_given_stays_as_it_was() -> None:
    base = p.ThresholdParameters(min_draft_length=3)
    assert p.parameters(
        p.ThresholdParameters, {"max_draft_length": 4}, base
    ) == p.ThresholdParameters(3, 4)


def test_a_value_that_makes_no_sense_does_not_take_the_others_of_its_block_along() -> None:
    found, wrong = read_orchestration(
        {
            "draft_acceptance_threshold": 0.98,
            "breaker": "never",
            "fallback_after_low_acceptance": 2000,
        }
    )
    assert found.breaker == p.BreakerParameters(automatic="never")
    assert list(wrong) == ["breaker"]
    assert wrong["breaker"].startswith("acceptance_floor=0.98 is more than repetition=0.97")
    assert "windows=2000" in wrong["breaker"]


def test_values_that_make_sense_together_are_taken_whatever_their_order() -> None:
    for given in ({"min_draft_length": 20, "max_draft_length": 24}, {"max_draft_length": 1}):
        found, wrong = read_orchestration(given)
        assert found.goodput.max_draft_length == given["max_draft_length"]
        assert ("threshold" in wrong) == (len(given) == 1)
