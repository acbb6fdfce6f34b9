"""Moments, spans, and what was known of an engine at one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listed_history import ListedEvent, ListedHistory
from tests.support.readings import START, STATE, URL, down, reading, readings

from specdeck.console.state.engine_state import Track
from specdeck.console.state.past import (
    SPANS,
    Bounds,
    TimeView,
    fold_past,
    move_to,
    now,
    step,
    widen,
)

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
