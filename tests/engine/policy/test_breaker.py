"""The breaker opens on what costs, comes back by itself, and does not flap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.parameters import BreakerParameters, GoodputParameters
from specdeck.engine.policy.reason import PoorProbe, Unjudged
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket


def guarded(
    k: int | None = 5, parameters: BreakerParameters | None = None
) -> tuple[PolicyRunner, Breaker]:
    known = Estimates(5)
    breaker = Breaker(parameters or BreakerParameters(), known)
    policy = Goodput(GoodputParameters(), known, k=5) if k is None else Fixed(k, k_max=5)
    return PolicyRunner(policy, known, breaker=breaker), breaker


@pytest.mark.parametrize("k", [5, None])
@pytest.mark.parametrize("requests", [1, 8])
def test_it_opens_within_three_windows_of_a_collapse_and_recovers(
    k: int | None, requests: int, engine: Any
) -> None:
    runner, breaker = guarded(k)
    engine.drive(runner, "predictable", requests, 20)
    assert breaker.state == "closed"
    opened: list[float] = []
    began = engine.t
    engine.drive(
        runner,
        "hard",
        requests,
        30,
        lambda seen: opened.append(seen.t) if breaker.view().state == "open" else None,
    )
    # The window in which the text turned may still be good on balance.
    assert opened[0] - began < 4 * breaker.parameters.window_s
    assert breaker.view().reason
    engine.drive(runner, "predictable", requests, breaker.parameters.cooldown_max_s + 8)
    assert breaker.state == "closed"


def test_while_it_is_open_next_to_nothing_is_lost(engine: Any) -> None:
    runner, breaker = guarded(5)
    engine.drive(runner, "hard", 8, 30)
    assert breaker.state != "closed"
    assert engine.drive(runner, "hard", 8, 60) > 0.97 * engine.rate("hard", 8, 0)


def test_speculation_that_pays_is_left_alone(engine: Any) -> None:
    runner, breaker = guarded(3)
    engine.drive(runner, "middling", 4, 120)
    assert breaker.view().opened == 0


def test_low_acceptance_that_pays_is_left_alone(engine: Any) -> None:
    runner, breaker = guarded(3, BreakerParameters(acceptance_floor=0.65))
    engine.drive(runner, "middling", 1, 60)
    view = breaker.view()
    assert view.opened == 0
    assert view.acceptance is not None
    assert view.acceptance < 0.65


def at_the_edge(engine: Any, gain: float) -> None:
    """Makes k = 2 on middling text exactly `gain` faster than target-only, at 4 streams."""
    alone = engine.cost.seconds(4, 0)
    tokens = engine.rate("middling", 4, 2) * engine.cost.seconds(4, 2) / 4
    spare = alone * tokens / (1 + gain) - alone
    engine.cost = replace(engine.cost, per_k=spare / 2 - 4 * engine.cost.per_token)


@pytest.mark.parametrize("gain", [-0.03, 0.0, 0.03])
def test_at_the_edge_it_does_not_flap(gain: float, engine: Any) -> None:
    at_the_edge(engine, gain)
    runner, breaker = guarded(2)
    engine.drive(runner, "middling", 4, 1200)
    assert breaker.view().opened <= 1


def test_the_cool_down_doubles_up_to_its_limit_and_begins_small_again(engine: Any) -> None:
    runner, breaker = guarded(5, BreakerParameters(cooldown_s=2.0, cooldown_max_s=4.0))
    engine.drive(runner, "hard", 8, 60)
    assert breaker.view().cooldown_s == breaker.parameters.cooldown_max_s
    engine.drive(runner, "predictable", 8, 90)
    engine.drive(runner, "hard", 8, 3.5)
    view = breaker.view()
    assert view.state == "open"
    assert view.cooldown_s == breaker.parameters.cooldown_s
    assert view.next_probe_s is not None
    assert 0 <= view.next_probe_s <= view.cooldown_s


def test_half_open_only_a_small_share_speculates(engine: Any) -> None:
    runner, breaker = guarded(5)
    engine.drive(runner, "hard", 8, 20)
    steps: list[tuple[str, int]] = []
    engine.drive(runner, "hard", 8, 60, lambda seen: steps.append((breaker.state, seen.k)))
    assert sum(k > 0 for _, k in steps) < 0.05 * len(steps)
    assert {state for state, _ in steps} == {"open", "half-open"}


def half_open(breaker: Breaker, tried: list[bool]) -> Callable[[Step], None]:
    """Notes of each step with a half-open breaker whether it was to draft."""

    def note(seen: Step) -> None:
        if breaker.state == "half-open":
            tried.append(seen.k > 0)

    return note


def test_half_open_more_speculates_where_it_costs_next_to_nothing(engine: Any) -> None:
    at_the_edge(engine, -0.02)
    runner, breaker = guarded(2)
    engine.drive(runner, "middling", 4, 10)
    breaker.trip("hand", "by hand", hold=False)
    runner.switch(runner.policy)
    tried: list[bool] = []
    speed = engine.drive(runner, "middling", 4, 30, half_open(breaker, tried))
    assert len(tried) > 100
    assert sum(tried) > 2 * breaker.parameters.share * len(tried)
    assert speed > 0.97 * engine.rate("middling", 4, 0)


def test_half_open_every_step_speculates_once_that_seems_to_pay(engine: Any) -> None:
    runner, breaker = guarded(3, BreakerParameters(good_probes=8))
    engine.drive(runner, "hard", 4, 20)
    assert breaker.view().state != "closed"
    tried: list[bool] = []
    engine.drive(runner, "predictable", 4, 20, half_open(breaker, tried))
    assert breaker.state == "closed"
    assert all(tried[-24:])
    assert not all(tried)


@pytest.fixture
def hopeful(engine: Any) -> tuple[PolicyRunner, Breaker]:
    """Half-open at 4 streams where it seems to pay, and far from certain enough to close."""
    runner, breaker = guarded(3, BreakerParameters(good_probes=50))
    engine.drive(runner, "hard", 4, 20)
    in_a_row = 0
    while in_a_row < 20:
        seen = engine.step("predictable", 4, runner.decision.k(4))
        runner.choose(seen)
        in_a_row = in_a_row + 1 if breaker.state == "half-open" and seen.k else 0
    return runner, breaker


def test_a_new_batch_size_has_target_only_measured_first(
    engine: Any, hopeful: tuple[PolicyRunner, Breaker]
) -> None:
    runner, _ = hopeful
    engine.drive(runner, "predictable", 40, 3)
    assert runner.estimates.times.steps(bucket(40), 0) > 20


def test_probes_are_judged_by_steps_that_carry_prompts(
    engine: Any, hopeful: tuple[PolicyRunner, Breaker]
) -> None:
    runner, breaker = hopeful
    states: list[str] = []
    for _ in range(300):
        seen = engine.step("hard", 4, runner.decision.k(4))
        runner.choose(seen._replace(prefill=7))
        states.append(breaker.state)
    assert "open" in states
    assert isinstance(breaker.reason, PoorProbe)


def test_a_half_open_breaker_that_can_judge_nothing_opens_again_and_says_why(
    engine: Any, hopeful: tuple[PolicyRunner, Breaker]
) -> None:
    runner, breaker = hopeful
    breaker.trip("hand", "ana: load test", hold=False)
    began, longest = engine.t, breaker.parameters.cooldown_max_s
    while not isinstance(breaker.reason, Unjudged) and engine.t < began + 4 * longest:
        seen = engine.step("predictable", 4, runner.decision.k(4))
        runner.choose(seen._replace(settled=False))
    assert breaker.state == "open"
    assert "no step that verified drafts was timed" in str(breaker.reason)


def test_deep_drafts_of_which_few_tokens_are_accepted_are_left_alone(engine: Any) -> None:
    # Of five tokens drafted 0.19 are accepted: as many tokens a draft as k = 1 needs to pay.
    known = Estimates(5)
    breaker = Breaker(BreakerParameters(), known)
    for _ in range(1500):
        seen = engine.step("half", 4, 5)
        known.add(seen)
        breaker.step(seen, bypassed=False)
    view = breaker.view()
    assert view.acceptance is not None
    assert view.acceptance < 0.2
    assert view.opened == 0


def test_without_a_comparison_acceptance_waits_until_one_is_overdue(engine: Any) -> None:
    known = Estimates(5)
    breaker = Breaker(BreakerParameters(), known)
    began, opened = engine.t, None
    while opened is None and engine.t < began + 30:
        seen = engine.step("hard", 4, 5)
        known.add(seen)
        breaker.step(seen, bypassed=False)
        if breaker.state == "open":
            opened = engine.t - began
    assert opened is not None
    assert opened > 2 * breaker.parameters.windows * breaker.parameters.window_s


def test_opened_by_the_policy_it_leaves_trying_to_the_policy(engine: Any) -> None:
    runner, breaker = guarded(None)
    engine.drive(runner, "hard", 8, 15)
    assert (breaker.state, breaker.cause) == ("open", "policy")
    assert breaker.view().next_probe_s is None
    tried: list[int] = []
    states: set[str] = set()

    def watch(seen: Step) -> None:
        tried.append(seen.k)
        states.add(breaker.state)

    engine.drive(runner, "hard", 8, 60, watch)
    assert states == {"open"}
    assert 0 < sum(k > 0 for k in tried) < 0.05 * len(tried)


def test_a_probe_goes_on_with_the_k_of_its_batch_size(
    engine: Any, hopeful: tuple[PolicyRunner, Breaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, _ = hopeful
    monkeypatch.setattr(runner.policy, "speculating", lambda requests: 1 if requests > 8 else 3)
    runner.choose(engine.step("predictable", 16, runner.decision.k(16)))
    assert runner.decision.k(16) == 1


@pytest.mark.parametrize("gain", [-0.1, -0.15])
def test_a_loss_from_the_start_opens_it(gain: float, engine: Any) -> None:
    at_the_edge(engine, gain)
    runner, breaker = guarded(2)
    engine.drive(runner, "middling", 4, 60)
    assert breaker.view().opened


def test_a_breach_of_divergence_holds_it_open_until_reset(engine: Any) -> None:
    runner, breaker = guarded(5)
    engine.drive(runner, "predictable", 8, 5)
    breaker.trip("divergence", "2.1 % of 500 prompts differ, 1.5 % allowed", hold=True)
    engine.drive(runner, "predictable", 8, 60)
    view = breaker.view()
    assert (view.state, view.held, view.next_probe_s) == ("open", True, None)
    assert view.reason == "2.1 % of 500 prompts differ, 1.5 % allowed"
    breaker.reset()
    engine.drive(runner, "predictable", 8, 5)
    assert breaker.state == "closed"
    assert runner.decision.k(8) == 5


def test_tripped_by_hand_without_hold_it_recovers(engine: Any) -> None:
    runner, breaker = guarded(5)
    engine.drive(runner, "predictable", 8, 10)
    breaker.trip("hand", "ana: load test", hold=False)
    engine.drive(runner, "predictable", 8, 1)
    assert runner.decision.k(8) == 0
    engine.drive(runner, "predictable", 8, 12)
    assert breaker.state == "closed"


def test_an_operators_zero_is_no_finding(engine: Any) -> None:
    runner, breaker = guarded(0)
    engine.drive(runner, "predictable", 8, 20)
    assert breaker.view().opened == 0


def test_output_that_repeats_itself_raises_an_alarm_that_ends(engine: Any) -> None:
    runner, breaker = guarded(5)
    engine.drive(runner, "predictable", 4, 5)
    assert breaker.alarm is None
    engine.drive(runner, "loop", 4, 15)
    assert breaker.alarm is not None
    assert "may repeat itself" in str(breaker.alarm)
    engine.drive(runner, "predictable", 4, 5)
    assert breaker.alarm is None


@pytest.fixture
def alarmed(engine: Any) -> tuple[PolicyRunner, Breaker]:
    runner, breaker = guarded(5)
    engine.drive(runner, "loop", 4, 15)
    assert breaker.alarm is not None
    return runner, breaker


def test_the_alarm_ends_when_nothing_is_drafted_any_more(
    engine: Any, alarmed: tuple[PolicyRunner, Breaker]
) -> None:
    runner, breaker = alarmed
    runner.switch(Fixed(0, k_max=5))
    engine.drive(runner, "loop", 4, 5)
    assert breaker.alarm is None


def test_a_policy_that_bypasses_ends_the_alarm(
    engine: Any, alarmed: tuple[PolicyRunner, Breaker]
) -> None:
    _, breaker = alarmed
    for _ in range(300):
        breaker.step(engine.step("loop", 4, 0), bypassed=True, automatic=False)
    assert breaker.alarm is None


def test_an_open_breaker_raises_no_alarm_of_repetition(
    engine: Any, alarmed: tuple[PolicyRunner, Breaker]
) -> None:
    runner, breaker = alarmed
    breaker.trip("hand", "somebody did", hold=True)
    assert breaker.alarm is None
    breaker.reset()
    engine.drive(runner, "loop", 4, 5)
    assert breaker.alarm is None  # it takes as many windows again


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_clock_that_jumps_ends_one_wait_at_most(jump: float, engine: Any) -> None:
    runner, breaker = guarded(5)
    engine.drive(runner, "hard", 8, 10)
    engine.t += jump
    engine.drive(runner, "predictable", 8, 25)
    assert breaker.state == "closed"
    assert breaker.view().opened == 1


def test_where_target_only_is_unknown_acceptance_decides(engine: Any) -> None:
    known = Estimates(5)
    breaker = Breaker(BreakerParameters(acceptance_floor=0.3), known)
    for _ in range(600):
        seen = engine.step("hard", 4, 5)
        known.add(seen)
        breaker.step(seen, bypassed=False)
    view = breaker.view()
    assert (view.state, view.cause) != ("closed", None)
    assert view.cause == "acceptance"


def test_steps_of_unknown_duration_open_nothing() -> None:
    breaker = Breaker(BreakerParameters(), Estimates(5))
    for number in range(2000):
        seen = Step(number, number * 0.02, 4, 24, 5, 4, 20, 0, None, 4, verified=5, settled=True)
        breaker.step(seen, bypassed=False)
    assert breaker.state == "closed"
