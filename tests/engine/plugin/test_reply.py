"""What the plugin answers to `GET tuning`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.engine_core import (
    BUILD,
    Clock,
    FakeCore,
    good_step,
    make_control,
    poor_step,
    work,
)

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.engine import Tally
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change
from specdeck.engine.protocol.tuning import HardBaseline


def test_the_tuning_survives_the_wire(control: Control, engine: FakeCore) -> None:
    engine.play(300, by_k={5: 4})
    control.change(Change(k=3, judge=True, trial_s=4.0, lease_s=3600))
    engine.play(300, by_k={5: 4, 3: 2})
    tuning = control.tuning()
    wire = json.loads(json.dumps({**tuning.as_json(), "from_a_newer_plugin": 1}))
    assert type(tuning).from_json(wire) == tuning
    assert {point.k for point in tuning.curve} == {3, 5}
    assert tuning.k == ((1, 8, 5),)


def test_an_engine_that_cannot_change_k_still_answers(clock: Clock) -> None:
    engine = FakeCore(replace(BUILD, method="suffix"))
    control = make_control(engine, clock)
    engine.finish(good_step(1, 5))
    tuning = control.tuning()
    assert (tuning.breaker.state, tuning.curve, tuning.changes) == ("closed", (), ())
    for change in (Change(breaker="open"), Change(k=1, judge=True, lease_s=5)):
        with pytest.raises(Refusal) as refusal:
            control.change(change)
        assert refusal.value.status == 501


def test_the_moves_of_k_are_told_in_words(control: Control, engine: FakeCore) -> None:
    control.change(Change(k=3, who="ana", reason="trying"))
    control.change(Change(policy="threshold"))
    for step in range(3):
        engine.finish(poor_step(step))
    moves = control.tuning().changes
    assert [(move.before, move.after, move.who) for move in moves] == [
        (5, 3, "ana"),
        (3, 4, "unknown"),
        (4, 3, "policy"),
    ]
    assert moves[0].reason == "trying"
    assert "k 4 → 3: 3 rounds in a row below the threshold" in moves[2].reason


def test_time_passes_on_an_idle_engine(control: Control, engine: FakeCore, clock: Clock) -> None:
    work(engine, clock)
    control.change(Change(breaker="open", probe=True))
    waits = control.tuning().breaker.next_probe_s
    clock.now += 1.5
    tuning = control.tuning()
    assert waits == 2.0
    assert tuning.breaker.next_probe_s == pytest.approx(0.5)
    assert tuning.breaker.since_s == pytest.approx(1.5)
    assert tuning.curve[0].age_s == pytest.approx(1.5, abs=0.4)
    clock.now += 1.0
    assert control.tuning().breaker.next_probe_s == 0.0


def test_an_idle_night_that_nobody_watched_is_as_long_as_it_was(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    for k in (0, 3):
        control.change(Change(k=k))
        work(engine, clock)
        clock.now += 1
    found = control.tuning()
    assert found.ledger is not None
    assert found.ledger.hour is not None
    assert found.curve
    clock.now += 9 * 3600
    found = control.tuning()
    assert found.ledger is not None
    assert found.ledger.hour is None
    assert found.ledger.day is not None
    assert found.curve == ()
    clock.now += 20 * 3600
    found = control.tuning()
    assert found.ledger is not None
    assert found.ledger.day is None


def test_pins_that_are_obeyed_no_more_are_named(control: Control, engine: FakeCore) -> None:
    def can_pin() -> list[tuple[bool, str | None]]:
        found = control.state().capabilities
        return [(one.available, one.reason) for one in found if one.name == "request_k"]

    assert (can_pin(), control.tuning().exact_reason) == ([(True, None)], None)
    engine.counts = replace(engine.counts, pins_failed=True)
    why = "specdeck failed at pinning requests; the engine's log says why"
    assert (can_pin(), control.tuning().exact_reason) == ([(False, why)], why)


def test_the_outlook_tells_measured_from_guessed(control: Control, engine: FakeCore) -> None:
    assert control.tuning().outlook == ()
    engine.counts = Tally(7, 9, (9, 9, 9, 0, 0), (9, 9, 9, 0, 0))
    engine.busy = (1, 0)
    control.change(Change(k=3))
    engine.play(300, by_k={3: 3})
    outlook = control.tuning().outlook
    assert [each.k for each in outlook if each.timed] == [3]
    assert [each.k for each in outlook if each.extrapolated] == [4, 5]
    assert outlook[3].tokens_per_step > outlook[1].tokens_per_step > 1
    assert all(each.tokens_per_second for each in outlook)


def test_without_a_measurement_savings_are_told_against_soft_zero(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    for k in (0, 3):
        control.change(Change(k=k))
        work(engine, clock)
    found = control.tuning()
    assert found.ledger.against == "soft"
    assert found.baseline == HardBaseline()


def test_a_measured_cost_of_soft_zero_is_what_savings_are_told_by(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    engine.busy = (1, 0)
    for k in (0, 3):
        control.change(Change(k=k))
        work(engine, clock)
    soft = control.tuning()
    control.change(Change(parameters={"baseline.soft_cost": 0.25}))
    hard = control.tuning()
    assert hard.ledger.against == "hard"
    assert soft.ledger.hour is not None
    assert hard.ledger.hour is not None
    assert hard.ledger.hour.saved_s < soft.ledger.hour.saved_s
    assert hard.ledger.hour.target_only_s > 0
    assert hard.baseline.soft_cost == 0.25
    assert soft.outlook[0].tokens_per_second is not None
    expected = 1.25 * soft.outlook[0].tokens_per_second
    assert hard.baseline.tokens_per_second == pytest.approx(expected)
    if soft.breaker.gain is not None:
        assert hard.baseline.gain == pytest.approx((1 + soft.breaker.gain) / 1.25 - 1)
    control.change(Change(parameters={"baseline.soft_cost": "none"}))
    assert control.tuning().ledger.against == "soft"
