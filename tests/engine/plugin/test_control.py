"""The control state: what is applied, refused and undone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.engine_core import BUILD, Clock, FakeCore, make_control

from specdeck.engine.plugin.contract import SCHEDULER, Gap
from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change

NO_LOOKUP = Gap(SCHEDULER[0], ("Scheduler.dynamic_sd_lookup",))


def test_k_max_is_in_force_before_traffic(control: Control, engine: FakeCore) -> None:
    assert engine.calls == [("k", 5)]
    assert control.state().k == 5


def test_a_configured_schedule_stays_until_the_first_change(clock: Clock) -> None:
    engine = FakeCore(replace(BUILD, own_schedule=True))
    control = make_control(engine, clock)
    assert engine.calls == []
    assert "by batch size" in control.change(Change(k=2)).notices[0]
    assert control.change(Change(k=3)).notices == ()


def test_a_change_says_before_applied_and_its_step(control: Control) -> None:
    applied = control.change(Change(k=3, who="ana", reason="trying"))
    assert (applied.before, applied.applied, applied.step) == ({"k": 5}, {"k": 3}, 7)
    state = control.state()
    assert (state.k, state.k_set, state.version) == (3, 3, 1)
    assert state.last_change is not None
    assert (state.last_change.who, state.last_change.reason) == ("ana", "trying")


def test_k_zero_is_applied(control: Control, engine: FakeCore) -> None:
    made = control.change(Change(k=0))
    assert (made.applied, made.instance) == ({"k": 0}, control.state().instance)
    assert engine.k == 0


def test_what_could_not_be_done_is_not_claimed(control: Control, engine: FakeCore) -> None:
    engine.broken = True
    with pytest.raises(RuntimeError):
        control.change(Change(mode="target-only", fallback="cold"))
    state = control.state()
    assert (state.mode, state.version, state.last_change) == ("speculate", 0, None)


def test_the_version_a_client_expects_must_hold(control: Control) -> None:
    control.change(Change(k=3, who="ana", expect_version=0))
    with pytest.raises(Refusal, match="version 1, changed by ana") as refusal:
        control.change(Change(k=4, expect_version=0))
    assert refusal.value.status == 409
    assert control.state().k == 3


def test_setting_what_is_set_is_no_change(control: Control) -> None:
    control.change(Change(k=5))
    assert control.state().version == 0


MARGIN = {"goodput.margin": 0.2}


@pytest.mark.parametrize(
    ("build", "change", "reason"),
    [
        (replace(BUILD, method=None, k_max=0), Change(k=1), "without speculative decoding"),
        (replace(BUILD, method="suffix"), Change(k=1), "accepts only k = 5"),
        (replace(BUILD, method="medusa"), Change(mode="target-only"), "accepts only k = 5"),
        (replace(BUILD, method="custom_class"), Change(k=1), "does not pass k"),
        (replace(BUILD, data_parallel=2, moe=True), Change(k=1), "must agree on k"),
        (replace(BUILD, gaps=(NO_LOOKUP,)), Change(k=1), "has no Scheduler.dynamic_sd_lookup"),
        (replace(BUILD, draft_architecture="step3p5"), Change(mode="target-only"), "cannot skip"),
        (replace(BUILD, can_skip_drafter=False), Change(fallback="cold"), "cannot be left out"),
        (replace(BUILD, method="suffix"), Change(policy="goodput"), "accepts only k = 5"),
        (replace(BUILD, method="suffix"), Change(parameters=MARGIN), "accepts only k = 5"),
        (BUILD, Change(k=6), "above k_max=5"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_with_the_reason(
    build: Build, change: Change, reason: str, clock: Clock
) -> None:
    engine = FakeCore(build)
    control = make_control(engine, clock)
    engine.calls.clear()
    with pytest.raises(Refusal, match=reason) as refusal:
        control.change(change)
    assert refusal.value.status == 501
    assert refusal.value.remedy
    assert engine.calls == []


def test_an_engine_that_cannot_change_k_is_never_told(clock: Clock) -> None:
    engine = FakeCore(replace(BUILD, method="suffix"))
    make_control(engine, clock)
    assert engine.calls == []


def test_the_fingerprint_moves_with_k_and_comes_back(control: Control) -> None:
    first = control.state().fingerprint
    control.change(Change(k=3))
    assert control.state().fingerprint != first
    control.change(Change(k=5))
    assert control.state().fingerprint == first


def test_how_target_only_was_kept_does_not_outlive_it(control: Control) -> None:
    first = control.state().fingerprint
    control.change(Change(mode="target-only", fallback="cold"))
    control.change(Change(mode="speculate"))
    assert control.state().fingerprint == first


def test_the_state_survives_the_wire(control: Control) -> None:
    control.change(Change(k=2, lease_s=5, who="ana"))
    state = control.state()
    assert type(state).from_json({**state.as_json(), "from_a_newer_plugin": 1}) == state


def test_the_last_change_tells_what_a_parameter_was_that_is_set_for_the_first_time(
    control: Control,
) -> None:
    for value, before in ((0.1, 0.015), (0.2, 0.1)):
        control.change(Change(parameters={"goodput.margin": value}, who="ana"))
        last = control.state().last_change
        assert last is not None
        assert (last.before["goodput.margin"], last.after["goodput.margin"]) == (before, value)


def test_a_change_that_fails_half_way_is_taken_back_whole(
    control: Control, engine: FakeCore
) -> None:
    engine.broken = True
    wanted = Change(
        mode="target-only", fallback="cold", parameters={"goodput.margin": 0.1}, policy="goodput"
    )
    with pytest.raises(RuntimeError):
        control.change(wanted)
    assert engine.k == 5
    tuning = control.tuning()
    assert tuning.policy == "fixed"
    assert {each.name: each.value for each in tuning.parameters}["goodput.margin"] == 0.015
