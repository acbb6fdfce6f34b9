"""What a PUT may carry."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.protocol.messages import Change, InvalidChange

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
KEYS = st.sampled_from([*Change.__dataclass_fields__, "K", ""])


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "k=3",
        {},
        {"k": -1},
        {"k": 1.5},
        {"k": "3"},
        {"k": True},
        {"speed": 3},
        {"mode": "off"},
        {"policy": 1},
        {"fallback": "hot"},
        {"k": 1, "lease_s": 0},
        {"k": 1, "lease_s": float("nan")},
        {"k": 1, "lease_s": float("inf")},
        {"k": 1, "lease_s": True},
        {"k": 1, "reason": 5},
        {"k": 1, "who": []},
        {"k": 1, "expect_version": "0"},
        {"renew": True},
        {"renew": 1, "lease_s": 5},
        {"renew": True, "lease_s": 5, "k": 2},
        {"breaker": "ajar"},
        {"breaker": "open", "lease_s": 5},
        {"probe": True, "k": 3},
        {"breaker": "closed", "cause": "divergence"},
        {"breaker": "open", "cause": "loss"},
        {"breaker": "open", "cause": "divergence", "probe": True},
        {"k": 3, "judge": True},
        {"k": 3, "judge": True, "lease_s": 5, "trial_s": 0.1},
        {"k": 3, "trial_s": 5},
        {"judge": True, "lease_s": 5},
        {"cancel": True, "k": 3},
        {"cancel": 1},
        {"k": 3, "trial": 1},
        {"cancel": True, "trial": "1"},
        {"parameters": {}},
        {"parameters": [1]},
        {"parameters": {"goodput.margin": [1]}},
        {"k": 1, "reason": "x" * 501},
        {"k": 1, "reason": "half \ud800"},
        {"k": 1, "who": "half \udcff"},
        {"k": 1, "origin": "half \ud800"},
        {"parameters": {"half \ud800": 1}},
        {"parameters": {"breaker.automatic": "half \ud800"}},
        {"parameters": {"threshold.max_draft_length": 10**4200}},
        {"k": 10**4200},
        {"k": 10**5000},
        {"k": 1, "lease_s": 10**5000},
        {"k": 1, "expect_version": 10**5000},
        {"half \ud800": 1},
    ],
)
def test_nonsense_is_refused(body: Any) -> None:
    with pytest.raises(InvalidChange) as refused:
        Change.from_json(body)
    assert len(str(refused.value).encode()) < 300


DEEP: Any = []
"""Lists within each other."""
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize("key", [*Change.__dataclass_fields__, "unknown"])
def test_a_refusal_is_short_however_deep_or_long_the_body_is(key: str) -> None:
    for value in (DEEP, {"x" * 10**6: DEEP}, "x" * 10**6):
        with pytest.raises(InvalidChange) as refused:
            Change.from_json({key: value})
        assert len(str(refused.value)) < 300


def test_text_of_500_characters_is_taken() -> None:
    reason = "ü" * 500
    assert Change.from_json({"k": 1, "reason": reason}).reason == reason


@given(JSON | st.dictionaries(KEYS, JSON))
def test_no_body_does_worse_than_be_refused(body: Any) -> None:
    try:
        change = Change.from_json(body)
    except InvalidChange:
        return
    assert change.knobs() or change.renew or change.cancel


def test_a_change_survives_the_wire() -> None:
    change = Change(k=0, mode="target-only", lease_s=3.0, who="ana", expect_version=0)
    assert Change.from_json(change.as_json()) == change
