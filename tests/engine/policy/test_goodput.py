"""The k of most tokens per second: near the oracle, quick, calm, not below target-only."""

from __future__ import annotations

import re
from typing import Any

import pytest

from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.goodput import Goodput
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


def test_without_exploring_it_still_chooses(engine: Any) -> None:
    runner, policy = auto(GoodputParameters(explore=0.0))
    engine.drive(runner, "hard", 8, 10)
    assert policy.chosen(8) <= 1


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
