"""Changes on lease: taken back when nobody renews them."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from tests.support.engine_core import BUILD, Clock, FakeCore, make_control

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change


def test_a_lease_takes_the_change_back(control: Control, engine: FakeCore, clock: Clock) -> None:
    control.change(Change(k=2, lease_s=10))
    clock.now += 9
    control.before_step()
    assert engine.k == 2
    clock.now += 1
    control.before_step()
    assert engine.k == 5
    state = control.state()
    assert state.lease is None
    assert state.last_change is not None
    assert state.last_change.who == "specdeck"


def test_a_renewed_lease_lasts_longer_and_goes_back_as_far(control: Control, clock: Clock) -> None:
    control.change(Change(k=2, lease_s=10))
    clock.now += 9
    control.change(Change(renew=True, lease_s=10))
    clock.now += 9
    assert control.state().k == 2
    control.change(Change(k=1, lease_s=10))
    clock.now += 11
    assert control.state().k == 5


def test_a_lease_of_somebody_else_is_neither_cut_short_nor_drawn_out(
    control: Control, clock: Clock
) -> None:
    control.change(Change(mode="target-only", lease_s=100, who="ana"))
    for seconds in (1, 1000):
        with pytest.raises(Refusal, match="ana's lease is under way"):
            control.change(Change(k=2, lease_s=seconds, who="bob"))
    control.change(Change(k=2, who="bob"))
    clock.now += 99
    assert control.state().mode == "target-only"
    clock.now += 2
    assert (control.state().mode, control.state().k) == ("speculate", 2)


def test_no_lease_takes_the_place_of_a_sweeps(control: Control, clock: Clock) -> None:
    control.change(Change(k=1, lease_s=10, who="ana", origin="sweep"))
    with pytest.raises(Refusal, match="ana's sweep is under way"):
        control.change(Change(mode="target-only", lease_s=300, who="ana"))
    control.change(Change(k=2, lease_s=10, who="ana", origin="sweep"))
    clock.now += 11
    assert control.state().k == 5


def test_who_leases_more_is_told_when_all_of_it_ends(control: Control, clock: Clock) -> None:
    assert control.change(Change(k=2, lease_s=10, who="ana")).notices == ()
    assert control.change(Change(k=1, lease_s=20, who="ana")).notices == ()
    clock.now += 5
    (notice,) = control.change(Change(mode="target-only", lease_s=60, who="ana")).notices
    assert notice.endswith("is reverted with this in 60 s, not in 15 s")


def test_a_change_without_lease_keeps_what_it_sets(control: Control, clock: Clock) -> None:
    control.change(Change(k=2, lease_s=10))
    control.change(Change(k=3))
    clock.now += 20
    assert control.state().k == 3


def test_the_undo_of_a_change_over_a_lease_is_what_the_lease_goes_back_to(
    control: Control,
) -> None:
    floor = "threshold.draft_acceptance_threshold"
    control.change(Change(policy="goodput"))
    control.change(Change(k=2, parameters={floor: 0.5}, lease_s=10, who="ana", origin="sweep"))
    applied = control.change(Change(k=3, parameters={floor: 0.7}, who="bob"))
    assert applied.before == {"k": 2, floor: 0.5}
    assert applied.undo == {"k": 5, "policy": "goodput", floor: 0.6}
    last = control.state().last_change  # for whoever does not hear the answer
    assert last is not None
    assert last.undo == applied.undo
    control.change(Change(k=4, who="bob"))
    last = control.state().last_change
    assert last is not None
    assert last.undo is None


def test_a_trial_is_not_made_permanent_by_a_change_of_something_else(
    control: Control, clock: Clock
) -> None:
    control.change(Change(mode="target-only", lease_s=8))
    applied = control.change(Change(k=3))
    assert "is reverted in 8 s" in applied.notices[0]
    clock.now += 9
    state = control.state()
    assert (state.mode, state.k, state.lease) == ("speculate", 3, None)


def test_what_makes_no_sense_once_a_lease_ends_is_refused_at_once(
    control: Control, clock: Clock
) -> None:
    control.change(Change(parameters={"threshold.max_draft_length": 20}, lease_s=30))
    lower = Change(parameters={"threshold.min_draft_length": 18}, who="bo")
    with pytest.raises(Refusal, match="when the lease ends, threshold: min_draft_length=18") as no:
        control.change(lower)
    assert no.value.status == 400
    assert control.change(replace(lower, lease_s=30)).applied == lower.parameters
    clock.now += 31
    control.before_step()
    found = {each.name: each.value for each in control.tuning().parameters}
    assert control.state().lease is None
    assert (found["threshold.max_draft_length"], found["threshold.min_draft_length"]) == (16, 1)


def test_what_cannot_be_taken_back_at_once_is_taken_back_a_little_later(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    cold = Change(mode="target-only", fallback="cold", lease_s=60)
    for change in (cold, replace(cold, judge=True, trial_s=4.0)):
        control.change(change)
        assert control.state().mode == "target-only"
        engine.broken = True
        with pytest.raises(RuntimeError):
            control.change(Change(cancel=True))
        engine.broken = False
        assert control.state().mode == "target-only"
        clock.now += 1
        state = control.state()
        assert (state.mode, state.fallback, state.lease) == ("speculate", "warm", None)


def test_a_lease_that_cannot_be_taken_back_is_tried_again_and_given_up(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    cold = Change(mode="target-only", fallback="cold", lease_s=5)
    for broken, left in ((1, "speculate"), (9, "target-only")):
        control.change(cold)
        engine.broken = True
        engine.skips.clear()
        clock.now += 5
        for _ in range(9):
            with contextlib.suppress(RuntimeError):
                control.before_step()
            if len(engine.skips) == broken:
                engine.broken = False
            clock.now += 0.5
        assert control.state().lease is None
        assert (control.state().mode, len(engine.skips)) == (left, min(broken, 3) + (broken == 1))


def test_a_lease_that_ran_out_cannot_be_renewed(control: Control, clock: Clock) -> None:
    control.change(Change(k=2, lease_s=1))
    clock.now += 2
    with pytest.raises(Refusal) as refusal:
        control.change(Change(renew=True, lease_s=10))
    assert refusal.value.status == 409


def test_a_policy_on_lease_gives_k_back(control: Control, engine: FakeCore, clock: Clock) -> None:
    control.change(Change(policy="threshold", lease_s=10))
    clock.now += 11
    control.before_step()
    assert (engine.k, control.state().policy) == (5, "fixed")


def test_a_configured_schedule_comes_back_when_a_lease_ends(clock: Clock) -> None:
    engine = FakeCore(replace(BUILD, own_schedule=True))
    control = make_control(engine, clock)
    name = control.state().fingerprint
    control.change(Change(k=2, lease_s=5))
    clock.now += 6
    control.before_step()
    assert engine.calls[-1] == ("schedule", None)
    assert control.state().fingerprint == name


def test_a_lease_brings_no_policy_back_when_steps_are_seen_no_more(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    control.change(Change(policy="goodput"))
    control.change(Change(k=3, lease_s=30))
    control.on_blind()
    assert engine.k == 3
    clock.now += 31
    assert (control.state().policy, engine.k) == ("fixed", 5)
