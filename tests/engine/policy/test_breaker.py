"""The breaker opens on what costs, comes back by itself, and does not flap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specdeck.engine.policy.batches import bucket
from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.policy.parameters import Breaker as Parameters
from specdeck.engine.policy.parameters import Goodput as GoodputParameters
from specdeck.engine.policy.pilot import Pilot


def guarded(k: int | None = 5, parameters: Parameters | None = None) -> tuple[Pilot, Breaker]:
    known = Experience(5)
    breaker = Breaker(parameters or Parameters(), known)
    policy = Goodput(GoodputParameters(), known, k=5) if k is None else Fixed(k, k_max=5)
    return Pilot(policy, known, breaker=breaker), breaker


@pytest.mark.parametrize("k", [5, None])
@pytest.mark.parametrize("requests", [1, 8])
def test_it_opens_within_three_windows_of_a_collapse_and_recovers(
    k: int | None, requests: int, engine: Any
) -> None:
    pilot, breaker = guarded(k)
    engine.drive(pilot, "predictable", requests, 20)
    assert breaker.state == "closed"
    opened: list[float] = []
    began = engine.t
    engine.drive(
        pilot,
        "hard",
        requests,
        30,
        lambda seen: opened.append(seen.t) if breaker.view().state == "open" else None,
    )
    # The window in which the text turned may still be good on balance.
    assert opened[0] - began < 4 * breaker.parameters.window_s
    assert breaker.view().reason
    engine.drive(pilot, "predictable", requests, breaker.parameters.cooldown_max_s + 8)
    assert breaker.state == "closed"


def test_while_it_is_open_next_to_nothing_is_lost(engine: Any) -> None:
    pilot, breaker = guarded(5)
    engine.drive(pilot, "hard", 8, 30)
    assert breaker.state != "closed"
    assert engine.drive(pilot, "hard", 8, 60) > 0.97 * engine.rate("hard", 8, 0)


def test_speculation_that_pays_is_left_alone(engine: Any) -> None:
    pilot, breaker = guarded(3)
    engine.drive(pilot, "middling", 4, 120)
    assert breaker.view().opened == 0


def test_low_acceptance_that_pays_is_left_alone(engine: Any) -> None:
    pilot, breaker = guarded(3, Parameters(acceptance_floor=0.65))
    engine.drive(pilot, "middling", 1, 60)
    view = breaker.view()
    assert view.opened == 0
    assert view.evidence is not None
    assert view.evidence.acceptance is not None
    assert view.evidence.acceptance < 0.65


def at_the_edge(engine: Any, gain: float) -> None:
    """Makes k = 2 on middling text exactly `gain` faster than target-only, at 4 streams."""
    alone = engine.cost.seconds(4, 0)
    tokens = engine.rate("middling", 4, 2) * engine.cost.seconds(4, 2) / 4
    spare = alone * tokens / (1 + gain) - alone
    engine.cost = replace(engine.cost, per_k=spare / 2 - 4 * engine.cost.per_token)


@pytest.mark.parametrize("gain", [-0.03, 0.0, 0.03])
def test_at_the_edge_it_does_not_flap(gain: float, engine: Any) -> None:
    at_the_edge(engine, gain)
    pilot, breaker = guarded(2)
    engine.drive(pilot, "middling", 4, 1200)
    assert breaker.view().opened <= 1


def test_the_cool_down_doubles_up_to_its_limit_and_begins_small_again(engine: Any) -> None:
    pilot, breaker = guarded(5, Parameters(cooldown_s=2.0, cooldown_max_s=4.0))
    engine.drive(pilot, "hard", 8, 60)
    assert breaker.view().cooldown_s == breaker.parameters.cooldown_max_s
    engine.drive(pilot, "predictable", 8, 90)
    engine.drive(pilot, "hard", 8, 3.5)
    view = breaker.view()
    assert view.state == "open"
    assert view.cooldown_s == breaker.parameters.cooldown_s
    assert view.next_probe_s is not None
    assert 0 <= view.next_probe_s <= view.cooldown_s


def test_half_open_only_a_small_share_speculates(engine: Any) -> None:
    pilot, breaker = guarded(5)
    engine.drive(pilot, "hard", 8, 20)
    steps: list[tuple[str, int]] = []
    engine.drive(pilot, "hard", 8, 60, lambda seen: steps.append((breaker.state, seen.k)))
    assert sum(k > 0 for _, k in steps) < 0.05 * len(steps)
    assert {state for state, _ in steps} == {"open", "half-open"}


def half_open(breaker: Breaker, tried: list[bool]) -> Callable[[StepSeen], None]:
    """Notes of each step with a half-open breaker whether it was to draft."""

    def note(seen: StepSeen) -> None:
        if breaker.state == "half-open":
            tried.append(seen.k > 0)

    return note


def test_half_open_more_speculates_where_it_costs_next_to_nothing(engine: Any) -> None:
    at_the_edge(engine, -0.02)
    pilot, breaker = guarded(2)
    engine.drive(pilot, "middling", 4, 10)
    breaker.trip("hand", "by hand", hold=False)
    pilot.settle()
    tried: list[bool] = []
    speed = engine.drive(pilot, "middling", 4, 30, half_open(breaker, tried))
    assert len(tried) > 100
    assert sum(tried) > 2 * breaker.parameters.share * len(tried)
    assert speed > 0.97 * engine.rate("middling", 4, 0)


def test_half_open_every_step_speculates_once_that_seems_to_pay(engine: Any) -> None:
    pilot, breaker = guarded(3, Parameters(good_probes=8))
    engine.drive(pilot, "hard", 4, 20)
    assert breaker.view().state != "closed"
    tried: list[bool] = []
    engine.drive(pilot, "predictable", 4, 20, half_open(breaker, tried))
    assert breaker.state == "closed"
    assert all(tried[-24:])
    assert not all(tried)


@pytest.fixture
def hopeful(engine: Any) -> tuple[Pilot, Breaker]:
    """Half-open at 4 streams where it seems to pay, and far from certain enough to close."""
    pilot, breaker = guarded(3, Parameters(good_probes=50))
    engine.drive(pilot, "hard", 4, 20)
    in_a_row = 0
    while in_a_row < 20:
        seen = engine.step("predictable", 4, pilot.decision.k(4))
        pilot.step(seen)
        in_a_row = in_a_row + 1 if breaker.state == "half-open" and seen.k else 0
    return pilot, breaker


def test_a_new_batch_size_has_target_only_measured_first(
    engine: Any, hopeful: tuple[Pilot, Breaker]
) -> None:
    pilot, _ = hopeful
    engine.drive(pilot, "predictable", 40, 3)
    assert pilot.experience.times.measured(bucket(40), 0) > 20


def test_prompts_in_every_step_leave_no_probe_on(
    engine: Any, hopeful: tuple[Pilot, Breaker]
) -> None:
    pilot, breaker = hopeful
    tried: list[bool] = []
    for _ in range(300):
        seen = engine.step("hard", 4, pilot.decision.k(4))
        pilot.step(seen._replace(prefill=7))
        tried.append(seen.k > 0)
    assert breaker.state == "half-open"  # there was nothing to judge
    assert sum(tried[-160:]) <= breaker.parameters.share * 160


def test_a_probe_goes_on_with_the_k_of_its_batch_size(
    engine: Any, hopeful: tuple[Pilot, Breaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    pilot, _ = hopeful
    monkeypatch.setattr(pilot.policy, "speculating", lambda requests: 1 if requests > 8 else 3)
    pilot.step(engine.step("predictable", 16, pilot.decision.k(16)))
    assert pilot.decision.k(16) == 1


@pytest.mark.parametrize("gain", [-0.1, -0.15])
def test_a_loss_from_the_start_opens_it(gain: float, engine: Any) -> None:
    at_the_edge(engine, gain)
    pilot, breaker = guarded(2)
    engine.drive(pilot, "middling", 4, 60)
    assert breaker.view().opened


def test_a_breach_of_divergence_holds_it_open_until_reset(engine: Any) -> None:
    pilot, breaker = guarded(5)
    engine.drive(pilot, "predictable", 8, 5)
    breaker.trip("divergence", "2.1 % of 500 prompts differ, 1.5 % allowed", hold=True)
    engine.drive(pilot, "predictable", 8, 60)
    view = breaker.view()
    assert (view.state, view.held, view.next_probe_s) == ("open", True, None)
    assert view.reason == "2.1 % of 500 prompts differ, 1.5 % allowed"
    breaker.reset()
    engine.drive(pilot, "predictable", 8, 5)
    assert breaker.state == "closed"
    assert pilot.decision.k(8) == 5


def test_tripped_by_hand_without_hold_it_recovers(engine: Any) -> None:
    pilot, breaker = guarded(5)
    engine.drive(pilot, "predictable", 8, 10)
    breaker.trip("hand", "ana: load test", hold=False)
    engine.drive(pilot, "predictable", 8, 1)
    assert pilot.decision.k(8) == 0
    engine.drive(pilot, "predictable", 8, 12)
    assert breaker.state == "closed"


def test_an_operators_zero_is_no_finding(engine: Any) -> None:
    pilot, breaker = guarded(0)
    engine.drive(pilot, "predictable", 8, 20)
    assert breaker.view().opened == 0


def test_output_that_repeats_itself_raises_an_alarm_that_ends(engine: Any) -> None:
    pilot, breaker = guarded(5)
    engine.drive(pilot, "predictable", 4, 5)
    assert breaker.alarm is None
    engine.drive(pilot, "loop", 4, 15)
    assert breaker.alarm is not None
    assert "may repeat itself" in breaker.alarm
    engine.drive(pilot, "predictable", 4, 5)
    assert breaker.alarm is None


@pytest.fixture
def alarmed(engine: Any) -> tuple[Pilot, Breaker]:
    pilot, breaker = guarded(5)
    engine.drive(pilot, "loop", 4, 15)
    assert breaker.alarm is not None
    return pilot, breaker


def test_the_alarm_ends_when_nothing_is_drafted_any_more(
    engine: Any, alarmed: tuple[Pilot, Breaker]
) -> None:
    pilot, breaker = alarmed
    pilot.follow(Fixed(0, k_max=5))
    engine.drive(pilot, "loop", 4, 5)
    assert breaker.alarm is None


def test_a_policy_that_bypasses_ends_the_alarm(engine: Any, alarmed: tuple[Pilot, Breaker]) -> None:
    _, breaker = alarmed
    for _ in range(300):
        breaker.step(engine.step("loop", 4, 0), bypassed=True, automatic=False)
    assert breaker.alarm is None


def test_an_open_breaker_raises_no_alarm_of_repetition(
    engine: Any, alarmed: tuple[Pilot, Breaker]
) -> None:
    pilot, breaker = alarmed
    breaker.trip("hand", "somebody did", hold=True)
    assert breaker.alarm is None
    breaker.reset()
    engine.drive(pilot, "loop", 4, 5)
    assert breaker.alarm is None  # it takes as many windows again


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_clock_that_jumps_ends_one_wait_at_most(jump: float, engine: Any) -> None:
    pilot, breaker = guarded(5)
    engine.drive(pilot, "hard", 8, 10)
    engine.t += jump
    engine.drive(pilot, "predictable", 8, 25)
    assert breaker.state == "closed"
    assert breaker.view().opened == 1


def test_where_target_only_is_unknown_acceptance_decides(engine: Any) -> None:
    known = Experience(5)
    breaker = Breaker(Parameters(acceptance_floor=0.3), known)
    for _ in range(600):
        seen = engine.step("hard", 4, 5)
        known.add(seen)
        breaker.step(seen, bypassed=False)
    view = breaker.view()
    assert (view.state, view.cause) != ("closed", None)
    assert view.cause == "acceptance"


def test_steps_of_unknown_duration_open_nothing() -> None:
    breaker = Breaker(Parameters(), Experience(5))
    for number in range(2000):
        seen = StepSeen(number * 0.02, 4, 5, 5, True, None, 4, 4, 20, (0,) * 5, 0)
        breaker.step(seen, bypassed=False)
    assert breaker.state == "closed"
