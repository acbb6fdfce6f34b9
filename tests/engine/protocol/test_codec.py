"""What another process wrote: a value of a known type, or an error that says what is wrong."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_state import engine_state

from specdeck.engine.protocol.codec import DEEPEST, MOST_VALUES, NotJson, WrongType, loads
from specdeck.engine.protocol.messages import (
    AppliedChange,
    Capability,
    EngineState,
    LastChange,
    Lease,
)
from specdeck.engine.protocol.tuning import BreakerTuning, TrialTuning, Tuning


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "deeper than"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "deeper than"),
        ('{"a":' * (DEEPEST + 1) + "1" + "}" * (DEEPEST + 1), "deeper than"),
        ("[" + "0," * MOST_VALUES + "0]", "more than"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("1e999", "too large"),
        ("9" * 5000, "5000 digits"),
        ("9" * 100, "100 digits"),
        ("", "Expecting value"),
        ("\ufeff1", "Expecting value"),
    ],
)
def test_what_nobody_means_well_with_is_not_read(text: str, words: str) -> None:
    with pytest.raises(NotJson, match=words):
        loads(text)
    with pytest.raises(NotJson, match=words):
        loads(text.encode())


@pytest.mark.parametrize("charset", ["utf-16", "utf-32", "utf-16-le", "utf-8-sig"])
def test_json_is_utf8(charset: str) -> None:
    with pytest.raises(NotJson):
        loads('{"a": "ä"}'.encode(charset))


def test_nesting_up_to_the_bound_is_read() -> None:
    text = "[" * DEEPEST + "]" * DEEPEST
    assert loads(text) == json.loads(text)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**38), 10**38)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_VALUES)
def test_what_is_json_is_read_as_it_is(value: Any) -> None:
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.text(alphabet=st.characters(), max_size=50))
def test_every_text_that_is_read_can_be_written(text: str) -> None:
    json.dumps(loads(json.dumps([text, {text: "\ud800"}])), ensure_ascii=False).encode()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error_of_ours(data: bytes) -> None:
    with suppress(NotJson):
        loads(data)


STATE = engine_state(
    lease=Lease(3.0, 5, "speculate"),
    last_change=LastChange(1.0, "ann", "why", {"k": 5}, {"k": 3}, "operator"),
    capabilities=(Capability("live_k", True),),
).as_json()
APPLIED = asdict(AppliedChange({"k": 5}, {"k": 3}, 1, 100, ("n",), 1, {"k": 5}))
TRIAL = asdict(TrialTuning("changed", "ann", {"k": 5}, {"k": 3}, 10.0, 1.0, 5.0))
TUNING = {
    "instance": "one", "version": 1, "t": 1.0, "policy": "fixed", "reason": None,
    "k": [[1, 4, 5]], "parameters": [], "breaker": asdict(BreakerTuning("closed", True)),
    "trial": TRIAL, "changes": [{"t": 1.0, "before": 5, "after": 3, "reason": "r", "who": "ann"}],
}  # fmt: skip


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(*at, key) for key, _ in inner]
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(one, dict | list | tuple):
            found += _places(one, (*at, key))
    return found


def _replace(value: Any, place: tuple[Any, ...], by: Any) -> Any:
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = by
    return copy


STRANGE: list[Any] = [
    None, [], {}, "", "x", -1, 0, 2.5, 1e300, 10**30, True, [None], ["x"], [[1, 2]], {"a": 1}
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "sound"), [(EngineState, STATE), (AppliedChange, APPLIED), (Tuning, TUNING)]
)
def test_one_strange_value_is_read_or_an_error_of_ours(cls: Any, sound: dict[str, Any]) -> None:
    assert cls.from_json(json.loads(json.dumps(sound))) is not None
    for place in _places(sound):
        for strange in STRANGE:
            with suppress(WrongType):
                read = cls.from_json(_replace(sound, place, strange))
                json.dumps(asdict(read), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k_max": 1_000_000}, "k_max is not between 0 and 256"),
        ({"k": True}, "k is true or false, not a whole number"),
        ({"k": 2.5}, "k is a number, not a whole number"),
        ({"breaker": "ajar"}, "breaker is none of closed, open, half-open"),
        ({"started": 1e12}, "started is not between"),
        ({"drafted_per_position": "555"}, "drafted_per_position is a text, not a list"),
        ({"last_change": [1]}, "last_change is a list, not an object"),
        ({"lease": {"seconds_left": 1.0}}, "no lease.k, lease.mode"),
    ],
)
def test_an_error_says_what_was_expected_where(change: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongType, match=words):
        EngineState.from_json({**STATE, **change})


def test_a_whole_number_may_be_written_with_a_point_and_words_may_be_new() -> None:
    state = EngineState.from_json({**STATE, "k": 3.0, "policy": "bandit"})
    assert (state.k, state.policy) == (3, "bandit")
    assert isinstance(state.k, int)
