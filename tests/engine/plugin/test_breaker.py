"""The breaker of an engine: by hand, for divergence, by itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.engine_core import Clock, FakeCore, good_step, make_control

from specdeck.engine.plugin.control import Control
from specdeck.engine.protocol.messages import Change


def test_the_breaker_by_hand_holds_beside_a_fixed_k(control: Control, engine: FakeCore) -> None:
    first = control.state().fingerprint
    applied = control.change(Change(breaker="open", reason="a breach", who="ci"))
    assert (applied.before, applied.applied) == ({"breaker": "closed"}, {"breaker": "open"})
    engine.play(500, by_k={0: 1, 5: 1})
    state, breaker = control.state(), control.tuning().breaker
    assert (engine.k, state.breaker, state.k_set, state.policy) == (0, "open", 5, "fixed")
    assert (breaker.held, breaker.reason, breaker.by) == (True, "a breach", "ci")
    assert state.fingerprint != first
    assert "breaker is open" in control.change(Change(k=3)).notices[0]
    assert engine.k == 0
    control.change(Change(breaker="closed"))
    assert engine.k == 3
    control.change(Change(k=5))
    assert control.state().fingerprint == first


def test_a_breaker_that_probes_closes_by_itself_and_the_name_follows(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    first = control.state().fingerprint
    engine.play(200, by_k={5: 4})
    clock.now = 100 + engine.played * 0.02  # where the steps are
    control.change(Change(breaker="open", probe=True))
    names = set()
    for _ in range(900):
        engine.play(1, by_k={0: 1, 5: 4})
        names.add(control._identity.as_json()["fingerprint"])
    assert control.state().breaker == "closed"
    assert engine.k == 5
    assert len(names) == 3
    assert control.state().fingerprint == first


def test_with_a_fixed_k_the_breaker_opens_by_itself_only_where_it_is_asked_to(
    engine: FakeCore, clock: Clock
) -> None:
    for automatic, state in ((None, "closed"), ("always", "open")):
        found = {} if automatic is None else {"breaker": automatic}
        control = make_control(engine, clock, found)
        seen = set()
        for number in range(900):
            control.before_step()
            committed = 1 + (number % 50 == 0)
            step = good_step(number, engine.k, committed)
            engine.finish(step._replace(seconds=0.03 if engine.k else 0.02, t=number * 0.03))
            seen.add(control.state().breaker)
        assert ("open" in seen) == (state == "open")


def test_a_breaker_that_opens_while_target_only_is_measured_is_told_and_can_be_reset(
    control: Control, engine: FakeCore
) -> None:
    control.change(Change(policy="threshold"))
    runner, name = control._steering.runner, control.state().fingerprint
    assert runner is not None
    for _ in range(900):
        engine.play(1, by_k=dict.fromkeys(range(6), 2))
        if engine.k == 0:
            break
    assert (engine.k, runner.breaker.state) == (0, "closed")

    def opens(*args: Any, **kwargs: Any) -> None:
        runner.breaker.trip("loss", "it lost", hold=False)

    runner.breaker.step = opens  # type: ignore[method-assign]  # whatever its windows say
    engine.play(1, by_k={0: 1})
    assert control.tuning().changes[-1].reason == "breaker opened: it lost"
    assert control._identity.as_json()["fingerprint"] != name
    control.change(Change(k=3, policy="fixed"))
    assert (engine.k, control.state().breaker) == (3, "closed")


def test_a_policy_that_follows_another_resets_what_opened_unseen(
    control: Control, engine: FakeCore
) -> None:
    control.change(Change(policy="threshold"))
    runner = control._steering.runner
    assert runner is not None
    runner.breaker.trip("loss", "it lost", hold=False)
    control.change(Change(k=3, policy="fixed"))
    assert (engine.k, control.state().breaker) == (3, "closed")


@pytest.mark.parametrize("end", [Change(mode="target-only"), None])
def test_an_alarm_of_repetition_ends_where_no_step_drafts_or_is_seen(
    control: Control, engine: FakeCore, end: Change | None
) -> None:
    for number in range(900):
        engine.finish(good_step(number, 5, 6))
    assert control.state().alarm is not None
    if end is None:
        control.on_blind()
    else:
        control.change(end)
    assert control.state().alarm is None


def test_a_breaker_held_open_stays_so_when_steps_are_seen_no_more(
    control: Control, engine: FakeCore
) -> None:
    control.change(Change(breaker="open", who="ci"))
    control.on_blind()
    assert (engine.k, control.state().breaker) == (0, "open")


def test_a_breach_of_divergence_is_told_as_one_and_outlives_a_policy(
    control: Control, engine: FakeCore
) -> None:
    found = Change(breaker="open", cause="divergence", reason="2 of 9 differ", who="ci")
    control.change(found)
    tuning = control.tuning()
    assert (tuning.breaker.cause, tuning.breaker.held) == ("divergence", True)
    assert tuning.changes[-1].reason == "breaker open for divergence: 2 of 9 differ"
    control.change(Change(policy="goodput"))
    control.change(Change(policy="fixed"))
    assert (engine.k, control.state().breaker) == (0, "open")


def test_undoing_a_reset_brings_back_a_breaker_that_recovers_by_itself(
    control: Control,
) -> None:
    control.change(Change(breaker="open", probe=True))
    reset = control.change(Change(breaker="closed"))
    assert (reset.before, reset.applied) == ({"breaker": "open"}, {"breaker": "closed"})
    assert reset.undo == {"breaker": "probe"}
    back = control.change(Change(breaker="open", probe=True))
    assert (back.before, back.applied) == ({"breaker": "closed"}, {"breaker": "open"})
    assert back.undo == {"breaker": "closed"}
    assert not control.tuning().breaker.held
    control.change(Change(breaker="open"))
    assert control.change(Change(breaker="open", probe=True)).undo == {"breaker": "open"}
    control.change(Change(breaker="open", who="ci"))
    assert control.change(Change(breaker="closed")).undo == {"breaker": "open"}


def test_what_takes_an_opened_breaker_back_is_a_reset_even_where_it_was_open(
    control: Control,
) -> None:
    control.change(Change(breaker="open", probe=True))
    tripped = control.change(Change(breaker="open", cause="divergence", who="ci"))
    assert (tripped.before, tripped.undo) == ({"breaker": "open"}, {"breaker": "closed"})
    assert control.change(Change(breaker="open")).undo == {"breaker": "closed"}
