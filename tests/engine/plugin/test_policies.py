"""A policy on an engine: what it moves, what ends it, what its parameters are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.engine_core import BUILD, Clock, FakeCore, good_step, make_control, poor_step

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change


def test_a_policy_moves_k_by_itself_and_says_why(control: Control, engine: FakeCore) -> None:
    control.change(Change(policy="threshold"))
    assert (engine.k, control.state().policy) == (4, "threshold")
    for step in range(3):
        engine.finish(poor_step(step))
    state = control.state()
    assert (engine.k, state.k) == (3, 3)
    assert state.policy_reason is not None
    assert "k 4 → 3" in state.policy_reason


def test_a_policy_that_moves_k_is_one_path(control: Control, engine: FakeCore) -> None:
    control.change(Change(policy="threshold"))
    before = control.state().fingerprint
    for step in range(3):
        engine.finish(poor_step(step))
    assert control.state().fingerprint == before


def test_an_operators_k_ends_the_policy(control: Control, engine: FakeCore) -> None:
    control.change(Change(policy="threshold"))
    applied = control.change(Change(k=2))
    assert "policy threshold → fixed" in applied.notices[0]
    assert (engine.k, control.state().policy) == (2, "fixed")
    engine.calls.clear()
    for step in range(9):
        engine.finish(poor_step(step))
    assert engine.calls == []


def test_target_only_holds_a_policy_still(control: Control, engine: FakeCore) -> None:
    control.change(Change(policy="goodput"))
    control.change(Change(mode="target-only"))
    engine.calls.clear()
    for step in range(9):
        engine.finish(poor_step(step))
    assert engine.calls == []
    control.change(Change(mode="speculate"))
    assert engine.calls[0][0] == "table"
    assert control.state().policy == "goodput"


def test_parameters_that_make_no_sense_are_refused_and_change_nothing(
    engine: FakeCore, clock: Clock
) -> None:
    odd = make_control(engine, clock, {"min_draft_length": 9, "max_draft_length": 2})
    engine.calls.clear()
    with pytest.raises(Refusal, match="more than"):
        odd.change(Change(policy="threshold"))
    assert (engine.calls, odd.state().policy) == ([], "fixed")


def test_an_exact_engine_of_the_config_starts_its_policy(engine: FakeCore, clock: Clock) -> None:
    control = make_control(
        engine, clock, {"adaptive_draft": True, "policy": "threshold"}, ("tools",)
    )
    state, tuning = control.state(), control.tuning()
    assert state.policy == "threshold"
    assert state.last_change is not None
    assert state.last_change.who == "config"
    assert tuning.exact.models == ("tools",)
    assert tuning.breaker.automatic


def test_parameters_are_taken_whole_or_not_at_all(control: Control) -> None:
    before = control.tuning().parameters
    for wrong in (
        {"threshold.draft_acceptance_threshold": 0.5, "threshold.min_draft_length": 17},
        {"breaker.acceptance_floor": 1.5},
        {"goodput.margins": 0.1},
        {"goodput.margin": "much"},
    ):
        with pytest.raises(Refusal) as refusal:
            control.change(Change(k=2, parameters=wrong))
        assert refusal.value.status == 400
    assert control.tuning().parameters == before
    assert control.state().version == 0
    applied = control.change(Change(parameters={"breaker.acceptance_floor": "none"}))
    assert applied.before == {"breaker.acceptance_floor": 0.1}
    assert applied.applied == {"breaker.acceptance_floor": None}


def test_a_k_that_ends_a_policy_can_be_undone(control: Control) -> None:
    control.change(Change(policy="goodput"))
    applied = control.change(Change(k=2))
    assert applied.before == {"k": 5, "policy": "goodput"}
    control.change(Change(k=5, policy="goodput"))
    assert (control.state().k_set, control.state().policy) == (5, "goodput")


def test_a_parameter_of_a_policy_in_force_keeps_its_k(control: Control, engine: FakeCore) -> None:
    control.change(Change(policy="threshold"))
    for step in range(3):
        engine.finish(poor_step(step))
    assert engine.k == 3
    control.change(Change(parameters={"threshold.draft_acceptance_threshold": 0.5}))
    assert engine.k == 3
    control.change(Change(parameters={"threshold.max_draft_length": 2}))
    assert engine.k == 2


STEP3P5 = replace(BUILD, draft_architecture="step3p5")


def test_a_draft_that_cannot_skip_a_round_is_never_given_k_zero(clock: Clock) -> None:
    engine = FakeCore(STEP3P5)
    control = make_control(engine, clock)
    with pytest.raises(Refusal, match="cannot skip"):
        control.change(Change(k=0))
    control.change(Change(policy="goodput"))
    seen = set()
    for number in range(2000):
        # Target-only would pay here: a draft costs three times a step and is never accepted.
        engine.finish(good_step(number, engine.k, 1)._replace(seconds=0.01 + 0.02 * engine.k))
        seen.add(engine.k)
    assert engine.k == 1
    assert 0 not in seen


def test_a_config_that_makes_no_sense_leaves_the_engine_as_it_is(
    engine: FakeCore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    nonsense = {"policy": "faster", "cooldown": 1, "draft_acceptance_threshold": 0.99}
    control = make_control(engine, clock, {"adaptive_draft": True, **nonsense})
    assert control.state().policy == "fixed"
    assert "policy is one of fixed" in caplog.text
    assert "its default breaker parameters: acceptance_floor=0.99" in caplog.text


def test_when_steps_are_seen_no_more_k_is_the_operators_again(
    control: Control, engine: FakeCore
) -> None:
    control.change(Change(policy="threshold"))
    for step in range(3):
        engine.finish(poor_step(step))
    control.change(Change(mode="target-only", judge=True, lease_s=60))
    assert engine.k == 0
    control.on_blind()
    state, trial = control.state(), control.tuning().trial
    assert (engine.k, state.policy, state.trial) == (5, "fixed", None)
    assert trial is not None
    assert trial.state == "reverted"
    with pytest.raises(Refusal, match="failed at watching"):
        control.change(Change(policy="goodput"))
    control.change(Change(k=2))
    assert engine.k == 2
