"""Alerts: raised once, cleared once, and by nothing but evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.engine_state import engine_state

from specdeck.engine.divergence.history import ExcessFigures
from specdeck.engine.divergence.statistics import Rate
from specdeck.engine.divergence.verdict import Word
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window
from specdeck.engine.operations.alerts import (
    SPAN_S,
    UNKNOWN_S,
    AcceptanceAlarm,
    Alert,
    CheckOutcome,
    MismatchAlarm,
)
from specdeck.engine.protocol.messages import EngineState, LastChange, Lease, Policy

URL = "http://e:1"


def reading(t: float, rate: float | None, *, drafts: float = 50.0) -> Reading:
    """A second in which so many rounds of four tokens were accepted at `rate`."""
    window = None
    if rate is not None:
        window = Window(1.0, drafts=drafts, drafted=4 * drafts, accepted=4 * drafts * rate)
    return Reading(t, URL, Sample(t, t), window)


def alerts(alarm: AcceptanceAlarm, readings: Iterable[Reading]) -> list[Alert]:
    found = [alert for one in readings if (alert := alarm.take(one)) is not None]
    assert all(isinstance(one, Alert) for one in found)
    return [one for one in found if isinstance(one, Alert)]


def blind(t: float, **known: Any) -> Reading:
    """A second of which the counters tell these figures only."""
    return Reading(t, URL, Sample(t, t), Window(1.0, **known))


def take(alarm: AcceptanceAlarm, readings: Iterable[Reading]) -> list[tuple[float, str]]:
    return [(one.t, found.line) for one in readings if (found := alarm.take(one)) is not None]


def test_an_acceptance_below_its_floor_is_told_once_and_so_is_its_end() -> None:
    alarm = AcceptanceAlarm(0.5)
    good = alerts(alarm, (reading(t, 0.7) for t in range(30)))
    bad = alerts(alarm, (reading(t, 0.2) for t in range(30, 90)))
    well = alerts(alarm, (reading(t, 0.7) for t in range(90, 150)))
    assert good == []
    assert [(alert.name, alert.is_raised) for alert in bad] == [("acceptance_floor", True)]
    assert bad[0].t < 30 + SPAN_S
    assert bad[0].value < 0.5
    assert [alert.is_raised for alert in well] == [False]
    assert "is above acceptance_floor 50.0% again" in well[0].line


def test_a_rate_that_hovers_about_the_floor_does_not_flap() -> None:
    alarm = AcceptanceAlarm(0.5)
    rates = [0.49, 0.51] * 300
    assert alerts(alarm, (reading(t, rate) for t, rate in enumerate(rates))) == []
    assert len(alerts(alarm, (reading(t, 0.3) for t in range(600, 700)))) == 1
    hovering = enumerate([0.495, 0.515] * 300, 700)
    assert alerts(alarm, (reading(t, rate) for t, rate in hovering)) == []


def test_a_rate_that_goes_to_and_fro_for_minutes_is_told_of_a_few_times() -> None:
    """As under a policy that drafts more deeply for a minute, and less deeply for the next."""
    alarm = AcceptanceAlarm(0.5)
    hour = [reading(t, 0.3 if t % 120 < 60 else 0.7) for t in range(3600)]
    found = alerts(alarm, hour)
    assert [one.is_raised for one in found] == [True, False, True]
    (cleared,) = alerts(alarm, (reading(t, 0.7) for t in range(3600, 3800)))
    assert not cleared.is_raised
    assert alerts(alarm, (reading(t, 0.7) for t in range(3800, 5000))) == []
    late = [reading(t, 0.3 if t < 5100 else 0.7) for t in range(5000, 5200)]
    assert [one.is_raised for one in alerts(alarm, late)] == [True, False]


def test_an_alert_that_comes_again_has_to_be_well_for_longer_each_time() -> None:
    alarm = AcceptanceAlarm(0.5)
    t, waits = 0, list[int]()
    for _ in range(7):
        while not alarm.is_raised:
            alarm.take(reading(t := t + 1, 0.2))
        began = t
        while alarm.is_raised:
            alarm.take(reading(t := t + 1, 0.8))
        waits.append(t - began)
    assert waits[0] < SPAN_S
    wanted = [60, 120, 240, 480, 960, 960]
    assert all(low <= wait < low + SPAN_S for low, wait in zip(wanted, waits[1:], strict=True))


def test_a_few_drafts_raise_nothing() -> None:
    alarm = AcceptanceAlarm(0.5)
    assert alerts(alarm, (reading(30.0 * t, 0.0, drafts=40) for t in range(50))) == []


def test_an_engine_that_accepts_more_than_it_drafts_raises_nothing() -> None:
    assert alerts(AcceptanceAlarm(0.5), (reading(t, 3.0) for t in range(60))) == []


def test_an_engine_that_drafts_nothing_changes_nothing() -> None:
    alarm = AcceptanceAlarm(0.5)
    assert alerts(alarm, [reading(0, None), reading(1, 0.0, drafts=0), reading(2, None)]) == []
    assert len(alerts(alarm, (reading(t, 0.1) for t in range(3, 60)))) == 1
    assert alerts(alarm, (reading(t, None) for t in range(60, 200))) == []
    assert alarm.is_raised


def test_evidence_does_not_reach_across_a_restart() -> None:
    alarm = AcceptanceAlarm(0.5)
    low = reading(0, 0.0, drafts=90)
    restarted = Reading(1.0, URL, Sample(1.0, 1.0), restarted=True)
    assert alerts(alarm, [low, restarted, reading(2, 0.0, drafts=90)]) == []


def test_windows_longer_than_the_span_count_one_by_one() -> None:
    alarm = AcceptanceAlarm(0.5)
    rates = (0.7, 0.2, 0.7)
    found = alerts(alarm, (reading(60.0 * n, rate, drafts=900) for n, rate in enumerate(rates)))
    assert [alert.is_raised for alert in found] == [True, False]


def test_a_clock_that_is_set_back_delays_no_alert() -> None:
    alarm = AcceptanceAlarm(0.5)
    good = [*(reading(t, 0.8) for t in range(9_000, 9_100)), *(reading(t, 0.8) for t in range(60))]
    assert alerts(alarm, good) == []
    (raised,) = alerts(alarm, (reading(t, 0.1) for t in range(60, 120)))
    assert raised.t < 60 + SPAN_S


@pytest.mark.parametrize("floor", [0.995, 0.01])
def test_every_floor_can_be_crossed_both_ways(floor: float) -> None:
    alarm = AcceptanceAlarm(floor)
    rates = (0.0, 1.0, 0.0)
    found = alerts(alarm, (reading(60.0 * n, rate, drafts=9e4) for n, rate in enumerate(rates)))
    assert [alert.is_raised for alert in found] == [True, False, True]


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ({"drafts": 50.0, "drafted": 200.0}, "no accepted tokens"),
        ({"drafted": 200.0}, "no drafts and no accepted tokens"),
        ({"drafts": 50.0, "accepted": 9.0}, "no draft tokens"),
    ],
)
def test_a_rate_that_the_counters_do_not_tell_is_said_once_until_it_was_known(
    known: dict[str, float], missing: str
) -> None:
    alarm, words = AcceptanceAlarm(0.5), "acceptance_floor 50.0% cannot be watched: /metrics tells"
    assert take(alarm, [Reading(0.0, URL, Sample(0.0, 0.0))]) == []
    told = take(alarm, (blind(t, **known) for t in range(1, 100)))
    assert told == [(1 + UNKNOWN_S, f"{words} {missing}")]
    assert take(alarm, (reading(t, 0.7) for t in range(100, 161))) == []
    again = take(alarm, (blind(t, **known) for t in range(161, 300)))
    assert again == [(161 + UNKNOWN_S, f"{words} {missing}")]


def test_counters_that_come_and_go_are_told_once() -> None:
    seconds = [blind(t, drafts=50.0) if t % 60 < 30 else reading(t, 0.7) for t in range(900)]
    assert len(take(AcceptanceAlarm(0.5), seconds)) == 1


def test_nothing_is_said_of_the_rate_of_an_engine_that_drafts_nothing() -> None:
    for known in ({}, {"drafts": 0.0}, {"drafts": 0.0, "drafted": 0.0}):
        assert take(AcceptanceAlarm(0.5), (blind(t, **known) for t in range(100))) == []


def test_counters_that_are_away_for_a_moment_are_not_told() -> None:
    seconds = [blind(t, drafts=50.0) if t % 15 else reading(t, 0.7) for t in range(200)]
    assert take(AcceptanceAlarm(0.5), seconds) == []


def test_that_an_engine_drafts_is_known_by_its_plugin_as_well() -> None:
    def told(rounds: int) -> list[tuple[float, str]]:
        states = (engine_state(drafts=rounds * t) for t in range(60))
        seconds = (replace(blind(t), state=state) for t, state in enumerate(states))
        return take(AcceptanceAlarm(0.5), seconds)

    ((t, line),) = told(9)
    assert t == 1 + UNKNOWN_S
    assert line.endswith("no drafts and no draft tokens and no accepted tokens")
    assert told(0) == []


def test_a_check_above_the_maximum_is_told_once_and_so_is_its_end() -> None:
    alarm = MismatchAlarm(0.015)
    outcomes = [(0, 200), (2, 200), (12, 200), (9, 200), (3, 200), (0, 20), (0, 200), (0, 0)]
    found = [
        alarm.take(CheckOutcome(float(t), *one, "pass"), URL) for t, one in enumerate(outcomes)
    ]
    assert [(n, one.is_raised) for n, one in enumerate(found) if one is not None] == [
        (2, True), (6, False),
    ]  # fmt: skip
    raised = found[2]
    assert raised is not None
    assert raised.line == "alert: mismatch rate 6.0% is above mismatch_max 1.5% (200 prompts)"
    assert raised.as_json() == {
        "event": "alert.raised", "kind": "alert", "alert": "mismatch_max", "t": 2.0,
        "engine": URL, "text": raised.line, "value": 0.06, "limit": 0.015, "evidence": 200,
    }  # fmt: skip


def test_what_the_floors_explain_raises_no_alert() -> None:
    """An honest engine on a GPU differs from itself in some of its outputs."""
    alarm = MismatchAlarm(0.015)

    def check(t: float, rate: float, reach: float) -> Alert | None:
        excess = ExcessFigures(rate, (rate - reach, rate + reach), rate + reach)
        return alarm.take(CheckOutcome(t, 25, 500, "pass", excess), URL)

    assert check(0.0, 0.002, 0.01) is None
    raised = check(1.0, 0.04, 0.01)
    assert raised is not None
    assert (raised.is_raised, raised.value) == (True, 0.04)
    assert check(2.0, 0.01, 0.01) is None
    cleared = check(3.0, -0.001, 0.01)
    assert cleared is not None
    assert (cleared.is_raised, cleared.value) == (False, 0.0)


def test_what_only_streamed_answers_have_raises_an_alert_where_the_check_fails() -> None:
    """An arm whose streamed answers alone are wrong differs from itself, as a noisy one does."""
    none = ExcessFigures(0.0, (-0.05, 0.05), 0.05)

    def check(verdict: Word, streamed: int, floor: int) -> Alert | None:
        found = CheckOutcome(0.0, 0, 200, verdict, none, Rate(streamed, 200), Rate(floor, 200))
        return MismatchAlarm(0.015).take(found, URL)

    assert check("inconclusive", 40, 0) is None
    assert check("fail", 40, 40) is None
    assert check("fail", 1, 0) is None
    raised = check("fail", 40, 0)
    assert raised is not None
    assert (raised.is_raised, raised.value, raised.evidence) == (True, 0.2, 200)
    sure = ExcessFigures(0.05, (0.0242, 0.09), 0.09)
    found = CheckOutcome(0.0, 10, 200, "fail", sure, Rate(12, 200), Rate(1, 200))
    assert MismatchAlarm(0.015).take(found, URL) is not None


def test_no_mismatch_at_all_may_be_the_maximum() -> None:
    alarm = MismatchAlarm(0.0)
    found = [alarm.take(CheckOutcome(float(n), n % 2, 50, "pass"), URL) for n in range(3)]
    assert [one and one.is_raised for one in found] == [None, True, False]


@pytest.mark.parametrize("verdict", ["fail", "inconclusive", None])
def test_a_check_that_does_not_pass_raises_an_alert_and_clears_none(verdict: Word | None) -> None:
    alarm = MismatchAlarm(0.015)
    raised = alarm.take(CheckOutcome(0.0, 60, 300, verdict), URL)
    assert raised is not None
    assert raised.is_raised
    assert alarm.take(CheckOutcome(1.0, 0, 300, verdict), URL) is None
    assert alarm.is_raised
    cleared = alarm.take(CheckOutcome(2.0, 0, 300, "pass"), URL)
    assert cleared is not None
    assert not cleared.is_raised


def test_what_a_sweep_makes_of_the_rate_is_no_alert() -> None:
    swept = LastChange(1.0, "ann", "sweep", {"k": 5}, {"k": 1}, "sweep")
    moved = replace(engine_state(), lease=Lease(9.0, 5, "speculate"), last_change=swept)
    alarm = AcceptanceAlarm(0.5)
    assert alerts(alarm, (replace(reading(t, 0.2), state=moved) for t in range(90))) == []
    given_back = replace(moved, lease=None)
    after = alerts(alarm, (replace(reading(t, 0.2), state=given_back) for t in range(90, 150)))
    assert [alert.is_raised for alert in after] == [True]


@pytest.mark.parametrize(("policy", "is_cleared"), [("goodput", False), ("fixed", True)])
def test_drafts_that_a_policy_made_shorter_clear_no_alert(policy: Policy, is_cleared: bool) -> None:
    """Of eight tokens a tenth are accepted of a draft that is poor, of one nearly half."""
    state = replace(engine_state(), policy=policy)
    alarm = AcceptanceAlarm(0.35)

    def second(t: float, k: int, share: float) -> Reading:
        window = Window(1.0, drafts=40.0, drafted=40.0 * k, accepted=40.0 * k * share)
        return Reading(t, URL, Sample(t, t), window, state)

    (raised,) = alerts(alarm, (second(t, 8, 0.1) for t in range(30)))
    assert raised.is_raised
    shorter = [second(t, 1, 0.45) for t in range(30, 600)]
    shorter[300] = replace(shorter[300], state=None)  # an answer that was late
    assert [one.is_raised for one in alerts(alarm, shorter)] == [False] * is_cleared
    well = alerts(alarm, (second(t, 8, 0.5) for t in range(600, 700)))
    assert [one.is_raised for one in well] == [False] * (not is_cleared)


def test_an_engine_that_was_restarted_without_its_policy_clears_an_alert() -> None:
    state = replace(engine_state(), policy="goodput")
    alarm = AcceptanceAlarm(0.45)

    def second(t: float, k: int, share: float, state: EngineState | None) -> Reading:
        window = Window(1.0, drafts=40.0, drafted=40.0 * k, accepted=40.0 * k * share)
        return Reading(t, URL, Sample(t, t), window, state)

    (raised,) = alerts(alarm, (second(t, 5, 0.2, state) for t in range(30)))
    assert raised.is_raised
    without = [second(t, 2, 0.9 if t < 500 else 0.1, None) for t in range(30, 600)]
    without[0] = replace(without[0], restarted=True)
    assert [one.is_raised for one in alerts(alarm, without)] == [False, True]


def test_drafts_that_bring_enough_clear_an_alert_though_a_policy_made_them_shorter() -> None:
    """Three tokens and a half of four are more than half of five."""
    state = replace(engine_state(), policy="goodput")
    alarm = AcceptanceAlarm(0.5)
    drafts = [(5, 0.2)] * 30 + [(4, 0.9)] * 60
    found = alerts(
        alarm,
        (
            Reading(
                t, URL, Sample(t, t), Window(1.0, None, 40.0, 40.0 * k, 40.0 * k * share), state
            )
            for t, (k, share) in enumerate(drafts)
        ),
    )
    assert [one.is_raised for one in found] == [True, False]


@pytest.mark.parametrize(("busy", "of"), [(30, 120), (10, 45), (1, 40)])
@pytest.mark.parametrize("thin", [0.0, 0.5])
def test_an_alert_is_cleared_beside_pauses_in_the_traffic(busy: int, of: int, thin: float) -> None:
    """Also one that came again, and a fall a day later is told of."""
    alarm = AcceptanceAlarm(0.5)
    twice = [reading(t, 0.8 if 100 <= t < 160 else 0.2) for t in range(260)]
    assert [one.is_raised for one in alerts(alarm, twice)] == [True, False, True]
    drafts = {True: 200.0, False: thin}
    bursts = [reading(t, 0.8, drafts=drafts[t % of < busy]) for t in range(260, 4_000)]
    assert [one.is_raised for one in alerts(alarm, bursts)] == [False]
    (raised,) = alerts(alarm, (reading(t, 0.1) for t in range(90_000, 90_060)))
    assert raised.is_raised


def test_nothing_is_well_between_good_rates_that_are_far_apart() -> None:
    alarm = AcceptanceAlarm(0.5)
    coming = (reading(t, rate) for t, rate in enumerate([0.2] * 30 + [0.8] * 60 + [0.2] * 40))
    assert [one.is_raised for one in alerts(alarm, coming)] == [True, False, True]
    good = 130
    for start in range(good, good + 1000, 100):
        thin = (reading(t, 0.1, drafts=2.0) for t in range(start + 1, start + 99))
        assert alerts(alarm, [reading(start, 0.9, drafts=900.0), *thin]) == []
    assert alarm.is_raised
