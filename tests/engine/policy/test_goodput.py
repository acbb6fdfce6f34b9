"""The k of most tokens per second: near the oracle, quick, calm, not below target-only."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.cost import CostModel
from specdeck.engine.policy.estimates import BLOCK_STEPS, Estimates
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput, Prober, improvement
from specdeck.engine.policy.parameters import GoodputParameters, ParameterError
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step


def auto(
    parameters: GoodputParameters | None = None, *, k: int = 5
) -> tuple[PolicyRunner, Goodput]:
    known = Estimates(5)
    policy = Goodput(parameters or GoodputParameters(), known, k=k)
    return PolicyRunner(policy, known, breaker=None), policy


@pytest.mark.parametrize("text", ["predictable", "middling", "hard"])
@pytest.mark.parametrize("requests", [1, 8, 32])
def test_it_keeps_within_three_percent_of_the_best_k(text: str, requests: int, engine: Any) -> None:
    runner, _ = auto()
    engine.drive(runner, text, requests, 5)
    rate = engine.drive(runner, text, requests, 60)
    assert rate > 0.965 * engine.rate(text, requests, engine.best(text, requests))


def test_it_follows_a_change_of_text_within_two_seconds(engine: Any) -> None:
    runner, policy = auto()
    engine.drive(runner, "predictable", 8, 20)
    assert policy.chosen(8) >= 4
    engine.drive(runner, "hard", 8, 2)
    assert policy.chosen(8) <= 1
    engine.drive(runner, "predictable", 8, 8)
    assert policy.chosen(8) >= 4


def test_a_batch_size_never_seen_gets_its_k_at_once(engine: Any) -> None:
    runner, policy = auto()
    for requests in (1, 4, 8):
        engine.drive(runner, "middling", requests, 15)
    engine.drive(runner, "middling", 32, 1)
    chosen, best = policy.chosen(32), engine.best("middling", 32)
    assert engine.rate("middling", 32, chosen) > 0.93 * engine.rate("middling", 32, best)


def test_a_steady_load_sees_few_changes(engine: Any) -> None:
    runner, policy = auto()
    engine.drive(runner, "middling", 8, 20)
    before = policy.reasons
    engine.drive(runner, "middling", 8, 120)
    assert policy.reasons - before <= 6


def test_tries_are_few_and_target_only_is_among_them(engine: Any) -> None:
    runner, policy = auto()
    engine.drive(runner, "predictable", 8, 20)
    tried: list[int] = []

    def watch(seen: Step) -> None:
        if seen.k != policy.chosen(8):
            tried.append(seen.k)

    engine.drive(runner, "predictable", 8, 60, watch)
    steps = 60 / engine.cost.seconds(8, 5)
    assert 0 in tried
    assert len(tried) < 0.08 * steps


def test_a_try_in_a_row_of_tries_never_replaces_the_choice(engine: Any) -> None:
    """What is chosen is run, or another is chosen: a try that seems to gain ends as well."""
    runner, policy = auto()
    longest = row = 0

    def watch(seen: Step) -> None:
        nonlocal longest, row
        row = row + 1 if seen.k != policy.chosen(8) else 0
        longest = max(longest, row)

    engine.noise = 0.3
    engine.drive(runner, "middling", 8, 60, watch)
    assert longest <= 6 * GoodputParameters().probe_steps


def test_looks_beside_target_only_are_short_and_cost_little(engine: Any) -> None:
    runner, policy = auto()
    engine.drive(runner, "hard", 32, 30)
    assert not policy.chosen(32)
    rows: list[int] = []
    before = 0

    def watch(seen: Step) -> None:
        nonlocal before
        if seen.k:
            rows[-1:] = [rows[-1] + 1] if before else [*rows[-1:], 1]
        before = seen.k

    rate = engine.drive(runner, "hard", 32, 60, watch)
    assert rows
    assert max(rows) <= 4
    assert rate > 0.99 * engine.rate("hard", 32, 0)


def test_a_text_that_comes_and_goes_is_seen_at_once(engine: Any) -> None:
    runner, _ = auto()
    for _ in range(6):
        engine.drive(runner, "hard", 8, 4)
        engine.drive(runner, "predictable", 8, 4)
    engine.drive(runner, "hard", 8, 4)
    rate = engine.drive(runner, "predictable", 8, 1)
    assert rate > 0.8 * engine.rate("predictable", 8, engine.best("predictable", 8))


def test_a_policy_that_is_replaced_while_it_looks_leaves_blocks_as_they_were(engine: Any) -> None:
    runner, _ = auto()
    known = runner.estimates
    engine.drive(runner, "hard", 32, 20)
    for _ in range(10_000):
        runner.choose(engine.step("hard", 32, runner.decision.k(32)))
        if known.block_steps < BLOCK_STEPS:
            break
    assert known.block_steps < BLOCK_STEPS
    runner.switch(Fixed(3, k_max=5))
    assert known.block_steps == BLOCK_STEPS


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1))
def test_more_doubt_promises_no_less(gain: float, doubt: float, more: float) -> None:
    less, most = improvement(gain, doubt), improvement(gain, doubt + more)
    assert max(0.0, gain) <= less + 1e-9
    assert less <= most + 1e-9


@given(st.lists(st.tuples(st.integers(0, 21), st.floats(0, 2), st.floats(0, 0.3)), max_size=200))
def test_tries_cost_no_more_than_was_saved_for_them(work: list[tuple[int, float, float]]) -> None:
    prober, spent, earned = Prober(0.01, 8), 0.0, 0.0
    for here, seconds, cost in work:
        prober.earn(here, seconds)
        earned += seconds
        if prober.start(here, cost):
            spent += cost
            prober.stop()
    batches = len({here for here, _, _ in work})
    assert spent <= 0.01 * earned + batches * (0.15 + 0.3) + 1e-9


def test_without_exploring_it_still_chooses(engine: Any) -> None:
    runner, policy = auto(GoodputParameters(explore=0.0))
    engine.drive(runner, "hard", 8, 10)
    chosen = policy.chosen(8)
    assert chosen <= 1
    ks = set()
    engine.drive(runner, "hard", 8, 20, lambda seen: ks.add(seen.k))
    assert ks <= {0, 1, chosen}


def test_it_stays_within_the_lengths_it_was_given(engine: Any) -> None:
    runner, _ = auto(GoodputParameters(min_draft_length=2, max_draft_length=4))
    ks = set()
    for text in ("hard", "predictable"):
        engine.drive(runner, text, 4, 10, lambda seen: ks.add(seen.k))
    assert ks <= {2, 3, 4}


def test_the_reason_names_positions_cost_and_gain(engine: Any) -> None:
    runner, policy = auto()
    engine.drive(runner, "hard", 8, 5)
    assert policy.reason is not None
    line = str(policy.reason)
    assert re.match(r"k [1-5] → \d: position", line)
    assert " accepted " in line
    assert " ms more" in line
    assert "; expected +" in line


def test_a_machine_that_slows_down_moves_no_k(engine: Any) -> None:
    runner, policy = auto()
    engine.drive(runner, "middling", 8, 30)
    chosen = policy.chosen(8)
    engine.slowdown = 1.6
    engine.drive(runner, "middling", 8, 20)
    assert abs(policy.chosen(8) - chosen) <= 1


def test_drafts_that_were_dear_for_seconds_are_not_taken_for_dear_ever_after(engine: Any) -> None:
    runner, _ = auto()
    cheap = engine.cost
    engine.cost = CostModel(cheap.base, cheap.per_request, 5 * cheap.per_k, 5 * cheap.per_token)
    engine.drive(runner, "predictable", 8, 3)
    engine.cost = cheap
    engine.drive(runner, "predictable", 8, 300)
    rate = engine.drive(runner, "predictable", 8, 60)
    assert rate > 0.975 * engine.rate("predictable", 8, engine.best("predictable", 8))


def test_a_clock_set_back_does_not_stop_it(engine: Any) -> None:
    runner, policy = auto()
    engine.drive(runner, "predictable", 8, 10)
    engine.t = -5000.0
    engine.drive(runner, "hard", 8, 4)
    assert policy.chosen(8) <= 1


def test_the_same_steps_give_the_same_choices(engine: Any) -> None:
    steps: list[Step] = []
    runner, _ = auto()
    engine.drive(runner, "middling", 4, 10, steps.append)
    runs = []
    for _ in range(2):
        runner, _ = auto()
        runs.append([runner.choose(seen).table for seen in steps])
    assert runs[0] == runs[1]


def test_an_engine_without_drafts_is_refused() -> None:
    with pytest.raises(ParameterError, match="nothing to choose"):
        Goodput(GoodputParameters(), Estimates(0), k=0)
