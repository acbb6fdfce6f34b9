"""Parameters that make no sense are refused with the reason."""

from typing import Any

import pytest

from specdeck.engine.policy import parameters as p


@pytest.mark.parametrize(
    ("cls", "given", "reason"),
    [
        (
            p.Threshold,
            {"min_draft_length": 8, "max_draft_length": 4},
            "min_draft_length=8 is more than max_draft_length=4",
        ),
        (p.Threshold, {"draft_acceptance_threshold": 1.5}, "not between 0 and 1"),
        (p.Threshold, {"draft_acceptance_threshold": "high"}, "'high' is not a number"),
        (p.Threshold, {"draft_acceptance_threshold": float("nan")}, "nan is not a number"),
        (p.Threshold, {"draft_acceptance_threshold": 10**400}, "not between 0 and 1"),
        (p.Threshold, {"fallback_after_low_acceptance": 0}, "less than 1"),
        (p.Threshold, {"min_draft_length": True}, "True is not a whole number"),
        (p.Threshold, {"speed": 1}, "no parameter 'speed': there are draft_acceptance"),
        (p.Goodput, {"min_draft_length": 5, "max_draft_length": 2}, "is more than"),
        (p.Goodput, {"explore": 0.9}, "not between 0 and 0.2"),
        (p.Breaker, {"acceptance_floor": 1.2}, "not between 0 and 1"),
        (p.Breaker, {"cooldown_s": 60, "cooldown_max_s": 10}, "is more than cooldown_max_s=10"),
        (p.Breaker, {"gain": -0.5}, "would close on what opens it"),
        (p.Trial, {"seconds": 2.0}, "fewer than 5 blocks"),
        (p.Trial, {"keep_inconclusive": 1}, "neither true nor false"),
    ],
)
def test_nonsense_is_refused_with_the_reason(cls: type, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(p.ParameterError, match=reason):
        p.parameters(cls, given)


def test_what_is_not_given_stays_as_it_was() -> None:
    base = p.Threshold(min_draft_length=3)
    assert p.parameters(p.Threshold, {"max_draft_length": 4}, base) == p.Threshold(3, 4)
