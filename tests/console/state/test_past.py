"""Moments, spans, and what was known of an engine at one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.listed_history import ListedEvent, ListedHistory
from tests.support.readings import START, STATE, URL, down, reading, readings
from tests.support.recorded_engine import busy_sample, look_at, record
from tests.support.tuned_engine import TRIAL, tuning

from specdeck.console.screens.head import brief_control, control
from specdeck.console.screens.tuning.view import breaker_line
from specdeck.console.state.engine_state import FingerprintNames, Track, fold_reading
from specdeck.console.state.past import (
    SPANS,
    Bounds,
    TimeView,
    fold_past,
    move_to,
    now,
    read_last_minute,
    step,
    widen,
)
from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.sample import Sample

LIVE = Track("demo", URL)

spans = st.sampled_from((None, *SPANS))
times = st.floats(0.0, 100_000.0)
keys = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(-80, 80)),
        st.tuples(st.just("widen"), st.sampled_from((-1, 1))),
        st.tuples(st.just("go"), times),
    ),
    max_size=30,
)


@given(keys=keys, first=st.floats(0.0, 90_000.0), live=st.booleans())
def test_whatever_keys_come_the_moment_is_recorded_and_on_the_charts(
    keys: list[tuple[str, float]], first: float, live: bool
) -> None:
    bounds, view = Bounds(first, 100_000.0, live), TimeView()
    for name, value in keys:
        if name == "step":
            view = step(view, int(value), bounds)
        elif name == "widen":
            view = widen(view, int(value), bounds)
        else:
            view = move_to(view, value, bounds)
        if view.t is None:
            assert view.start is None
            continue
        assert bounds.first <= view.t <= bounds.last
        assert view.start is not None
        assert view.start <= view.t <= view.start + view.seconds * (1 + 1e-9)
        assert view.start >= bounds.first
        if live:
            assert view.t < bounds.last


@given(t=st.floats(1000.0, 99_000.0), span=st.sampled_from(SPANS), by=st.integers(1, 20))
def test_steps_back_and_forward_come_back_to_the_moment(t: float, span: float, by: int) -> None:
    bounds = Bounds(0.0, 200_000.0)
    view = move_to(TimeView(span=span), t, bounds)
    there = step(view, -by, bounds)
    if there.t != bounds.first:
        back = step(there, by, bounds)
        assert back.t == pytest.approx(t)


def test_steps_within_the_charts_leave_them_where_they_are() -> None:
    bounds = Bounds(0.0, 10_000.0)
    view = move_to(TimeView(), 5000.0, bounds)
    assert view.start == 4850.0
    for _ in range(20):
        view = step(view, 1, bounds)
        assert view.start == 4850.0
    assert view.t == 5100.0
    assert step(view, 10, bounds).start == 5000.0


def test_a_step_back_from_now_is_the_past_and_one_forward_is_now_again() -> None:
    bounds = Bounds(0.0, 10_000.0)
    view = step(TimeView(), -1, bounds)
    assert (view.t, view.start) == (9995.0, 9700.0)
    assert step(view, 1, bounds).t is None


def test_the_end_of_a_recording_is_its_last_moment() -> None:
    bounds = Bounds(0.0, 1000.0, live=False)
    assert now(TimeView(), bounds).t == 1000.0
    assert step(now(TimeView(), bounds), 5, bounds).t == 1000.0
    assert step(TimeView(3.0, 300.0, 0.0), -9, bounds).t == 0.0


def test_what_was_known_at_a_moment_is_the_reading_then_and_what_had_happened() -> None:
    three = replace(STATE, k=3, k_set=3, version=2)
    told = [
        ListedEvent(START + 4, "ann changed k 5 → 3", origin="operator", who="ann"),
        ListedEvent(START + 4, "", label="k3"),
        ListedEvent(START + 8, "the engine was restarted", "restart", "warn"),
    ]
    history = ListedHistory([*readings(4), *readings(16, three, 4)], told)
    found = fold_past(history, LIVE, START + 6.5)
    assert found.past
    assert found.reading == history.listed[6]
    assert found.figures == found.reading
    assert found.known == three
    assert [event.text for event in found.events] == ["ann changed k 5 → 3"]
    cause = found.events[0].cause
    assert cause is not None
    assert (cause.origin, cause.who) == ("operator", "ann")


def test_where_nothing_was_recorded_nothing_is_known() -> None:
    history = ListedHistory([*readings(5), *readings(5, STATE, 500)])
    found = fold_past(history, LIVE, START + 100)
    assert found.reading is None
    assert found.figures is None
    assert found.known is None
    assert fold_past(history, LIVE, START - 1).reading is None
    assert fold_past(history, LIVE, START + 100, silence_s=200.0).reading == history.listed[4]


def test_an_engine_that_was_down_has_its_last_figures() -> None:
    history = ListedHistory([*readings(5), down(5), down(6)])
    found = fold_past(history, LIVE, START + 6)
    assert found.up is False
    assert found.figures == history.listed[4]
    assert found.known == STATE


def test_what_was_known_of_a_former_life_is_not_known_after_a_restart() -> None:
    bare = replace(reading(5, None), restarted=True, window=None)
    history = ListedHistory([*readings(5), bare])
    assert fold_past(history, LIVE, START + 5).known is None


def _sample(n: int, life: int) -> Sample:
    """Of an engine whose counters begin anew in each life."""
    found = busy_sample(
        n % 1000 + 1, start=START + life, prefix_queries=90.0 * (n % 1000),
        prefix_hits=30.0 * (n % 1000), preemptions=float(n % 1000 // 7),
    )  # fmt: skip
    return replace(found, t=START + n, at=float(n))


@settings(max_examples=30)
@given(
    looks=st.lists(st.sampled_from(("up", "up", "up", "up", "up", "down", "restart")),
                   min_size=3, max_size=160)
)  # fmt: skip
def test_the_last_minute_of_a_moment_is_the_one_that_was_shown_live(
    looks: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    told, life = [], 0
    for n, look in enumerate(looks):
        if look == "restart":
            life = n
        told.append((None, None) if look == "down" else (_sample(n, life), STATE))
    listed = look_at(told)
    path = tmp_path_factory.mktemp("box") / "one.box"
    live = LIVE
    with closing(record(path, listed)), closing(History(path)) as history:
        for one in listed:
            live = fold_reading(live, one)
            if not one.up:
                continue  # it stands still while the engine is down
            assert read_last_minute(history, one.t) == live.last_minute


def _kept(*found: tuple[str, float, dict[str, Any]], count: int = 60) -> ListedHistory:
    history = ListedHistory(readings(count, replace(STATE, breaker="open", policy="goodput")))
    history.kept = list(found)
    return history


def test_the_tuning_of_a_moment_is_the_last_one_that_was_recorded_before() -> None:
    first, second = tuning(), replace(tuning(), reason="later")
    history = _kept(
        ("tuning", START + 10, first.as_json()), ("tuning", START + 50, second.as_json())
    )
    assert fold_past(history, LIVE, START + 9).tuning is None
    found = fold_past(history, LIVE, START + 40)
    later = replace(first.breaker, since_s=first.breaker.since_s + 30.0, next_probe_s=None)
    assert (found.tuning, found.tuning_age) == (replace(first, breaker=later), 30.0)
    found = fold_past(history, LIVE, START + 50)
    assert (found.tuning, found.tuning_age) == (second, 0.0)


def test_the_policy_of_a_moment_is_that_of_its_reading() -> None:
    told = replace(tuning(), reason="k 5 pays")
    history = _kept(("tuning", START + 10, told.as_json()))
    history.listed = readings(60, replace(STATE, policy="fixed", k=3))
    found = fold_past(history, LIVE, START + 40).tuning
    assert found is not None
    assert (found.policy, found.reason) == ("fixed", None)
    assert [k for _, _, k in found.k] == [3]
    assert found.curve == told.curve
    history = _kept(("tuning", START + 10, replace(told, policy="fixed").as_json()))
    history.listed = readings(60, replace(STATE, policy="goodput"))
    found = fold_past(history, LIVE, START + 40).tuning
    assert found is not None
    assert (found.policy, found.k) == ("goodput", ())


@pytest.mark.parametrize(("told", "state", "shown"), [
    ((), "open", "open for 42 s"),
    ((("half-open", 25),), "half-open", "half-open for 15 s"),
    ((("half-open", 25), ("open", 32)), "open", "open for 8 s"),
    ((), "closed", "closed"),
])  # fmt: skip
def test_the_breaker_is_as_it_was_at_the_moment_that_is_looked_at(
    told: tuple[tuple[str, int], ...], state: Literal["closed", "open", "half-open"], shown: str
) -> None:
    history = _kept(("tuning", START + 10, tuning().as_json()))
    history.listed = readings(60, replace(STATE, breaker=state))
    history.told = [
        ListedEvent(START + n, f"breaker {turned}", "breaker", "bad") for turned, n in told
    ]
    found = fold_past(history, LIVE, START + 40).tuning
    assert found is not None
    line = breaker_line(found.breaker, reset="b")
    assert line == shown or line.startswith((f"{shown};", f"{shown}:"))


def test_the_tuning_of_another_life_is_none() -> None:
    other = replace(tuning(), instance="b")
    history = _kept(("tuning", START + 10, other.as_json()))
    assert fold_past(history, LIVE, START + 40).tuning is None


@pytest.mark.parametrize("told", [{}, {"instance": "a"}, {"instance": "a", "k": "x"}])
def test_a_tuning_that_cannot_be_read_is_none(told: dict[str, Any]) -> None:
    history = _kept(("tuning", START + 10, told), ("fingerprint", START + 10, told))
    found = fold_past(history, LIVE, START + 40)
    assert found.tuning is None
    assert found.names is None
    assert found.reading is not None


def test_names_are_those_of_the_path_of_that_moment() -> None:
    names = FingerprintNames("sd1:b0", STATE.fingerprint or "", differs="build")
    history = _kept(("fingerprint", START + 1, asdict(names)))
    assert fold_past(history, LIVE, START + 40).names == names
    history = _kept(("fingerprint", START + 1, asdict(replace(names, path="sd1:p9"))))
    assert fold_past(history, LIVE, START + 40).names is None


def test_the_load_of_a_moment_is_the_one_that_ran_then() -> None:
    history = _kept(
        ("load", START, {"profile": "steady"}), ("load", START + 20, {"profile": "hard"}),
        ("load", START + 50, {"profile": None}),
    )  # fmt: skip
    live = replace(LIVE, load="gone")
    assert [fold_past(history, live, START + n).load for n in (5, 20, 49, 55)] == [
        "steady", "hard", "hard", None,
    ]  # fmt: skip


def test_a_trial_of_the_past_does_not_count_down() -> None:
    running = replace(STATE, trial="changed")
    history = ListedHistory(readings(60, running))
    history.kept = [("tuning", START + 10, replace(tuning(), trial=TRIAL).as_json())]
    found = fold_past(history, LIVE, START + 40)
    for row in (control(found), brief_control(found)):
        text = "".join(cell.text for cell in (*row.left, *row.right))
        assert "to go" not in text
