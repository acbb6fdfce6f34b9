"""Judged trials on an engine: kept, taken back, renewed and replaced."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.support.engine_core import Clock, FakeCore

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change


@pytest.mark.parametrize(("by_k", "end"), [({5: 2, 3: 4}, "kept"), ({5: 4, 3: 2}, "reverted")])
def test_a_trial_keeps_what_is_better_and_takes_back_what_is_worse(
    control: Control, engine: FakeCore, by_k: dict[int, int], end: str
) -> None:
    control.change(Change(k=3, judge=True, trial_s=4.0, lease_s=3600, who="ana"))
    assert (engine.k, control.state().trial) == (3, "changed")
    engine.play(30, by_k=by_k)
    assert (engine.k, control.state().trial) == (5, "baseline")
    engine.play(500, by_k=by_k)
    trial, state = control.tuning().trial, control.state()
    assert trial is not None
    assert (trial.state, state.trial, state.lease) == (end, None, None)
    assert trial.comparison is not None
    assert trial.comparison.before_tokens_per_second == pytest.approx(50 * by_k[5], rel=0.1)
    assert engine.k == (3 if end == "kept" else 5)
    assert (trial.before, trial.after, trial.who) == ({"k": 5}, {"k": 3}, "ana")


def test_a_trial_begins_with_its_change(control: Control, engine: FakeCore) -> None:
    applied = control.change(Change(mode="target-only", judge=True, trial_s=4.0, lease_s=60))
    assert (applied.before, applied.applied) == ({"mode": "speculate"}, {"mode": "target-only"})
    assert (engine.k, control.state().mode) == (0, "target-only")


@pytest.mark.parametrize(("by_k", "end"), [({5: 2, 3: 4}, 3), ({5: 4, 3: 2}, 5), ({5: 4, 3: 4}, 5)])
def test_turns_of_a_trial_are_no_changes_of_their_own(
    control: Control, engine: FakeCore, by_k: dict[int, int], end: int
) -> None:
    control.change(Change(k=3, judge=True, trial_s=4.0, lease_s=3600, who="ana"))
    version, names, seen = control.state().version, set(), []
    while control.state().trial is not None:
        engine.play(1, by_k=by_k)
        seen.append(engine.k)
        names.add(control.state().fingerprint)
        if control.state().trial is not None:
            assert control.state().version == version
    trial, state = control.tuning().trial, control.state()
    assert trial is not None
    assert sum(one != other for one, other in pairwise(seen)) >= 5
    assert len(names) == 2, "what serves is named as it is"
    assert (state.k, state.k_set, engine.k) == (end, end, end)
    assert state.version > version
    moves = [(move.before, move.after) for move in control.tuning().changes]
    assert moves == [(5, 3), (3, 3) if end == 3 else (3, 5)]
    assert state.last_change is not None
    assert state.last_change.after["k"] == end


def test_a_turn_that_fails_ends_the_trial_and_is_made_good(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    wanted = Change(mode="target-only", fallback="cold", judge=True, trial_s=4.0, lease_s=60)
    control.change(wanted)
    engine.broken = True
    with pytest.raises(RuntimeError):
        engine.play(200, by_k={5: 4, 0: 1})
    engine.broken = False
    trial = control.tuning().trial
    assert trial is not None
    assert (trial.state, trial.reason) == ("reverted", "a turn between the settings failed")
    clock.now += 1
    state = control.state()
    assert (state.mode, state.fallback, state.lease) == ("speculate", "warm", None)


def test_a_trial_that_nobody_renews_is_taken_back_within_its_lease(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    control.change(Change(policy="threshold", parameters={"threshold.max_draft_length": 3},
                             judge=True, trial_s=4.0, lease_s=10))  # fmt: skip
    assert control.state().policy == "threshold"
    clock.now += 8
    control.change(Change(renew=True, lease_s=10))
    clock.now += 8
    assert control.state().policy == "threshold"
    clock.now += 3
    state, tuning = control.state(), control.tuning()
    assert (state.policy, engine.k, state.k) == ("fixed", 5, 5)
    assert {each.name: each.value for each in tuning.parameters}["threshold.max_draft_length"] == 16
    assert tuning.trial is not None
    assert tuning.trial.reason == "the lease was not renewed"
    assert tuning.changes[-1].who == "trial"


def test_an_operators_change_ends_a_trial_and_stands(control: Control, engine: FakeCore) -> None:
    control.change(Change(k=3, judge=True, trial_s=4.0, lease_s=60))
    applied = control.change(Change(fallback="cold", who="bo"))
    assert "ended: bo changed the engine" in applied.notices[0]
    assert (engine.k, control.state().fallback) == (5, "cold")


def test_a_change_that_is_refused_leaves_a_trial_under_way(
    control: Control, engine: FakeCore
) -> None:
    wider = {"threshold.max_draft_length": 20}
    control.change(Change(parameters=wider, judge=True, trial_s=4.0, lease_s=60))
    assert control.state().trial == "changed"
    before = control.state().version
    with pytest.raises(Refusal, match="min_draft_length=18") as refusal:
        control.change(Change(parameters={"threshold.min_draft_length": 18}, who="bo"))
    assert refusal.value.status == 400
    assert (control.state().trial, control.state().version) == ("changed", before)


def test_there_is_one_trial_at_a_time_and_it_can_be_cancelled(control: Control) -> None:
    control.change(Change(k=3, judge=True, lease_s=60, who="ana"))
    with pytest.raises(Refusal, match="ana's trial") as refusal:
        control.change(Change(k=2, judge=True, lease_s=60))
    assert refusal.value.status == 409
    control.change(Change(cancel=True, who="ana"))
    trial = control.tuning().trial
    assert trial is not None
    assert (trial.state, trial.reason) == ("reverted", "cancelled by ana")
    with pytest.raises(Refusal, match="no lease and no trial is under way") as ended:
        control.change(Change(cancel=True))
    assert ended.value.status == 409


def test_a_trial_of_k_behind_an_open_breaker_says_that_it_has_no_effect(
    control: Control, engine: FakeCore
) -> None:
    engine.play(300, by_k={5: 4})
    control.change(Change(breaker="open"))
    applied = control.change(Change(k=3, judge=True, trial_s=4.0, lease_s=60))
    assert "the breaker is open: k takes effect" in applied.notices[-1]


def test_a_trial_whose_change_cannot_be_made_is_over(control: Control, engine: FakeCore) -> None:
    engine.broken = True
    wanted = Change(mode="target-only", fallback="cold", judge=True, trial_s=4.0, lease_s=60)
    with pytest.raises(RuntimeError):
        control.change(wanted)
    trial = control.tuning().trial
    assert (engine.k, control.state().trial) == (5, None)
    assert trial is not None
    assert trial.reason == "the change could not be made"


def test_a_replaced_trial_renews_and_cancels_nothing_of_its_successors(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    tried = control.change(Change(k=3, judge=True, lease_s=10, trial_s=5, who="ana"))
    assert tried.trial == 1
    control.change(Change(k=2, lease_s=3600, who="bob"))
    for stale in (Change(renew=True, lease_s=10, trial=1), Change(cancel=True, trial=1)):
        with pytest.raises(Refusal, match="trial 1 has ended") as caught:
            control.change(stale)
        assert caught.value.status == 409
    clock.now += 11
    state = control.state()
    assert (engine.k, state.lease.seconds_left if state.lease else None) == (2, 3589)
    control.change(Change(cancel=True))
    assert control.change(Change(k=4, judge=True, lease_s=10, trial_s=5)).trial == 2
    with pytest.raises(Refusal, match="trial 1 has ended"):
        control.change(Change(cancel=True, trial=1))


def test_a_trial_is_renewed_by_its_number_whatever_moved_meanwhile(
    control: Control, clock: Clock
) -> None:
    control.change(Change(policy="threshold", judge=True, lease_s=10, trial_s=5, who="ana"))
    clock.now += 9
    control.change(Change(renew=True, lease_s=10, trial=1))
    clock.now += 9
    assert control.state().trial == "changed"
    control.change(Change(cancel=True, trial=1))
    assert control.state().trial is None
