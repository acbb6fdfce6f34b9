"""A recording opens at the moment that it is looked at for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.listed_history import ListedEvent, ListedHistory
from tests.support.readings import START, down, reading

from specdeck.console.state.opening import find_last_figures, find_opening

CHANGE = ListedEvent(START + 10, "ann changed k 3 → 5", "change", "accent")
SLOWER = ListedEvent(START + 20, "tokens/s fell from 90 to 20", "other", "warn")
FALL = ListedEvent(START + 30, "acceptance fell from 46 % to 4 %", "other", "bad")
BREAKER = ListedEvent(START + 40, "breaker open: loses 12 %", "breaker", "bad")
DOWN = ListedEvent(START + 5, "no answer", "down", "bad")


@pytest.mark.parametrize(("told", "opens"), [
    ((CHANGE, SLOWER, FALL, BREAKER), FALL.t),
    ((DOWN, CHANGE, BREAKER), BREAKER.t),
    ((CHANGE, SLOWER), SLOWER.t),
    ((DOWN, CHANGE), START + 99),
    ((), START + 99),
])  # fmt: skip
def test_it_opens_at_the_first_alarm_or_else_at_the_last_figures(
    told: Sequence[Any], opens: float
) -> None:
    history = ListedHistory([reading(n) for n in range(100)])
    assert find_opening(history, told, START + 99) == opens


OWN = ListedEvent(START + 12, "drift from demo.json: knob changed: k 3 → 5", "drift", "bad")


def test_an_incident_opens_at_its_first_fall_and_not_at_drift_of_the_operators_own() -> None:
    history = ListedHistory([reading(n) for n in range(100)])
    told = (CHANGE, OWN, SLOWER, FALL)
    assert find_opening(history, told, START + 99, is_incident=True) == SLOWER.t
    assert find_opening(history, told, START + 99) == FALL.t
    assert find_opening(history, (OWN, SLOWER), START + 99) == OWN.t


@given(up=st.integers(2, 3000), gone=st.integers(0, 3000))
@settings(deadline=None, max_examples=25)
def test_the_last_figures_are_those_of_the_last_second_that_the_engine_told(
    up: int, gone: int
) -> None:
    story = [reading(n) for n in range(up)] + [down(up + n) for n in range(gone)]
    assert find_last_figures(ListedHistory(story)) == START + up - 1


def test_an_engine_that_never_told_any_is_looked_at_at_its_end() -> None:
    assert find_last_figures(ListedHistory([down(n) for n in range(200)])) == START + 199
