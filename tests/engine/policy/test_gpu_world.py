"""Goodput and breaker on a synthetic GPU, beside an oracle that meets the same steps."""

from __future__ import annotations

import pytest
from benchmarks.policy_gpu import GpuEngine, Segment, target_s
from benchmarks.policy_regret import Load, Oracle, drive, drive_fixed, measure, runner

from specdeck.engine.policy.parameters import BreakerParameters
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step

SECONDS = 40.0


def regret(*segments: Segment) -> float:
    load = Load("", segments)
    cell = measure(GpuEngine, Oracle(GpuEngine), load, (1,), breaker=BreakerParameters())
    assert cell.of_zero[0] > 0.95
    return cell.regrets[0]


# Before prompts were part of the cost: 0.25, 0.33, 0.44 and 0.20.
@pytest.mark.parametrize(("text", "size"), [("middling", 1), ("middling", 128), ("middling", 256),
                                        ("hard", 256)])  # fmt: skip
def test_steps_that_all_carry_prompts_are_timed_and_judged(text: str, size: int) -> None:
    assert regret(Segment(text, size, SECONDS, prompts=1.0)) < 0.06


# Before tries told how prompts follow k, and single steps what a longer one costs: 0.025 to 0.05.
@pytest.mark.parametrize(("text", "size"), [("half", 64), ("middling", 256)])
def test_many_tries_do_not_keep_it_from_learning_of_prompts(text: str, size: int) -> None:
    assert regret(Segment(text, size, SECONDS, prompts=0.95)) < 0.02


def test_prompts_that_follow_the_answers_are_not_taken_for_free() -> None:
    assert regret(Segment("hard", 64, SECONDS, answer=30)) < 0.06


def test_a_batch_that_varies_over_the_edge_of_a_bucket_sticks_at_no_wrong_k() -> None:
    assert regret(Segment("easy", 100, SECONDS, jitter=0.1)) < 0.08


def test_a_batch_size_never_seen_gets_its_k_with_the_first_step() -> None:
    sizes = [Segment("middling", size, 1.0) for size in (8, 128, 32, 256)]
    assert regret(*sizes * 10) < 0.06


@pytest.mark.parametrize("seed", [105, 109])
def test_tries_that_seem_to_gain_do_not_go_on_in_place_of_the_choice(seed: int) -> None:
    auto = runner("goodput", GpuEngine.k_max, breaker=BreakerParameters())
    row = longest = 0

    def watch(seen: Step, auto: PolicyRunner) -> None:
        nonlocal row, longest
        row = row + 1 if auto.policy.decision.probing else 0
        longest = max(longest, row)

    segment = Segment("middling", 32, SECONDS, prompts=1.0)
    drive(GpuEngine(), auto, [segment], seed, watch)
    assert 0 < longest < 150


def test_the_oracle_meets_the_same_steps() -> None:
    segments = [Segment("easy", 8, 5.0)]
    runs = [drive_fixed(GpuEngine(), segments, [4], seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_step_is_padded_to_the_next_graph_up_to_the_largest() -> None:
    assert target_s(257) == target_s(272) > target_s(256)
    assert target_s(600) < target_s(601)
