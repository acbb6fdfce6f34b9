"""Limits and differences of rates, against what they are meant to hold."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.why.draft_fit import HOPELESS
from specdeck.engine.why.figures import (
    FALSE_ALARMS,
    Pair,
    Spread,
    Trials,
    difference,
)
from specdeck.engine.why.step_shift import find_change

counts = st.integers(1, 400)


@given(counts, st.floats(0, 1), counts, st.floats(0, 1))
def test_a_difference_lies_in_its_interval_and_between_minus_one_and_one(
    n: int, p: float, m: int, q: float
) -> None:
    found = difference([Pair(Trials(n * p, n), Trials(m * q, m))], 0.95)
    assert found.low <= found.value <= found.high
    assert found.low >= -1.0000001
    assert found.high <= 1.0000001


@given(counts, st.floats(0.05, 0.95))
def test_equal_sides_are_never_apart(n: int, p: float) -> None:
    found = difference([Pair(Trials(n * p, n), Trials(n * p, n))] * 3, 0.999)
    assert found.low < 0 < found.high


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    random, held = Random(7), 0
    for _ in range(400):
        better = Trials(sum(random.random() < 0.6 for _ in range(60)), 60)
        worse = Trials(sum(random.random() < 0.4 for _ in range(40)), 40)
        found = difference([Pair(better, worse)], 0.95)
        held += found.low <= 0.2 <= found.high
    assert held >= 375


def test_drafts_that_a_grammar_cuts_short_are_seen_in_what_they_bring() -> None:
    """Of short drafts as much is accepted, and twice as many steps are taken."""
    whole = CohortCounts(9, 1, 309, 0, 100, (100, 100, 100), (80, 70, 50))
    short = CohortCounts(9, 1, 309, 0, 100, (100, 0, 0), (80, 0, 0))
    pair = Pair(Spread(1.0).trials(whole), Spread(1.0).trials(short))
    assert difference([pair], 0.95).value == pytest.approx(0.4)


def test_a_change_point_is_raised_no_more_often_than_it_says() -> None:
    raised = 0
    for seed in range(600):
        random, level, values = Random(seed), 0.0, []
        for _ in range(128):  # neighbours are alike
            level = 0.6 * level + random.gauss(0, 1)
            values.append(10 + level)
        found = find_change(values)
        raised += found is not None and found.p <= 0.001 and found.separated
    assert raised <= 2


@pytest.mark.parametrize(("requests", "hopeless"), [(80, True), (50, False)])
def test_requests_without_an_accepted_token_are_a_trial_each(requests: int, hopeless: bool) -> None:
    tokens = requests * 48
    none = CohortCounts(requests, 64, tokens, 0, tokens, (tokens, tokens), (0, 0))
    high = Spread().first_drafted(none).limits(1 - 2 * FALSE_ALARMS)[1]
    assert (high < HOPELESS) == hopeless
    some = CohortCounts(requests, 64, tokens, 0, tokens, (tokens, tokens), (1, 0))
    assert Spread().first_drafted(some).of == requests / 2
