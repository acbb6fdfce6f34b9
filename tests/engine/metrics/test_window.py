from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window, between, has_restarted

counts = st.integers(0, 10**9).map(float)
maybe = st.none() | counts


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    raised = draw(st.lists(st.integers(0, 1000), min_size=3, max_size=3))
    totals = tuple(float(sum(raised[: i + 1])) for i in range(3))
    return Histogram((0.1, 1.0, math.inf), totals)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    vector = st.none() | st.tuples(counts, counts, counts)
    return Sample(
        t=1000.0,
        at=10.0,
        model="demo",
        process_start=draw(st.none() | st.just(900.0)),
        drafts=draw(maybe),
        drafted=draw(maybe),
        accepted=draw(maybe),
        accepted_per_position=draw(vector),
        drafted_per_position=draw(vector),
        generated=draw(maybe),
        prompt=draw(maybe),
        preemptions=draw(maybe),
        prefix_queries=draw(maybe),
        prefix_hits=draw(maybe),
        cpu_watched=draw(maybe),
        core_ran=draw(maybe),
        core_waited=draw(maybe),
        worker_ran=draw(maybe),
        worker_waited=draw(maybe),
        cpu_throttled=draw(maybe),
        ttft=draw(st.none() | histograms()),
        itl=draw(st.none() | histograms()),
    )


Counted = float | tuple[float, ...] | Histogram | None
COUNTED = [f.name for f in fields(Window) if f.name != "seconds"]


def raised(value: Counted, by: float) -> Counted:
    if isinstance(value, Histogram):
        return Histogram(value.bounds, tuple(count + by for count in value.counts))
    if isinstance(value, tuple):
        return tuple(count + by for count in value)
    return None if value is None else value + by


def later(sample: Sample, by: float = 0.0, seconds: float = 2.0) -> Sample:
    raises: dict[str, Any] = {n: raised(getattr(sample, n), by) for n in COUNTED}
    return replace(sample, at=sample.at + seconds, **raises)


def put(sample: Sample, name: str, value: Any) -> Sample:
    return replace(sample, **{name: value})


@given(samples(), st.integers(0, 1000).map(float))
def test_a_window_is_what_the_counters_rose_by(older: Sample, by: float) -> None:
    window = between(older, later(older, by))
    assert window is not None
    assert window.seconds == 2.0
    for name in COUNTED:
        before, delta = getattr(older, name), getattr(window, name)
        if before is None:
            assert delta is None
        elif isinstance(before, Histogram):
            assert delta.counts == (by,) * 3
        else:
            assert delta == (tuple(by for _ in before) if isinstance(before, tuple) else by)


@given(samples(), st.sampled_from([*COUNTED, "prompt"]), st.integers(1, 1000).map(float))
def test_a_reset_of_any_series_closes_the_window(older: Sample, name: str, by: float) -> None:
    value = getattr(older, name)
    if value is None:
        return
    newer = put(later(older, 5.0), name, raised(value, -by))
    assert has_restarted(older, newer)
    assert between(older, newer) is None


@pytest.mark.parametrize("name", ["accepted_per_position", "drafted_per_position"])
def test_one_position_that_fell_closes_the_window(name: str) -> None:
    older = Sample(t=0.0, at=0.0, **{name: (5.0, 4.0, 3.0)})  # type: ignore[arg-type]  # both are tuples
    newer = Sample(t=1.0, at=1.0, **{name: (9.0, 9.0, 2.0)})  # type: ignore[arg-type]  # both are tuples
    assert between(older, newer) is None


@given(samples(), st.sampled_from(COUNTED), st.booleans())
def test_a_series_missing_on_either_side_is_not_known(
    older: Sample, name: str, before: bool
) -> None:
    newer = later(older, 3.0)
    if before:
        older = put(older, name, None)
    else:
        newer = put(newer, name, None)
    window = between(older, newer)
    assert window is not None
    assert getattr(window, name) is None


@given(samples(), st.sampled_from(["generated", "drafts", "drafted"]), st.booleans())
def test_what_is_no_number_is_not_known(older: Sample, name: str, before: bool) -> None:
    newer = later(older, 3.0)
    if before:
        older = put(older, name, math.nan)
    else:
        newer = put(newer, name, math.nan)
    window = between(older, newer)
    assert window is not None
    assert getattr(window, name) is None


@given(samples(), st.integers(0, 10**6).map(float))
def test_rates_are_finite_or_unknown(older: Sample, by: float) -> None:
    window = between(older, later(older, by))
    assert window is not None
    rates = [
        window.tokens_per_second,
        window.preemptions_per_second,
        window.acceptance_rate,
        window.draft_tokens_per_draft,
        window.mean_acceptance_length,
        window.output_from_drafts,
        *(window.acceptance_per_position or ()),
    ]
    assert all(rate is None or math.isfinite(rate) for rate in rates)


def test_another_start_of_the_process_closes_the_window() -> None:
    older = Sample(t=0.0, at=0.0, process_start=100.0, generated=5.0)
    newer = Sample(t=9.0, at=9.0, process_start=108.0, generated=50.0)
    assert has_restarted(older, newer)
    assert between(older, newer) is None
    assert not has_restarted(older, replace(newer, process_start=100.4))


def test_another_k_max_is_another_life() -> None:
    older = Sample(t=0.0, at=0.0, accepted_per_position=(0.0, 0.0))
    newer = Sample(t=1.0, at=1.0, accepted_per_position=(0.0, 0.0, 0.0))
    assert has_restarted(older, newer)


def test_another_number_of_engines_closes_the_window_without_a_restart() -> None:
    older = Sample(t=0.0, at=0.0, process_start=1.0, engines=2, generated=50.0)
    newer = Sample(t=1.0, at=1.0, process_start=1.0, engines=1, generated=30.0)
    assert not has_restarted(older, newer)
    assert between(older, newer) is None


def test_another_model_is_another_life_unless_the_process_is_the_same() -> None:
    older = Sample(t=0.0, at=0.0, model="one", generated=5.0)
    newer = Sample(t=1.0, at=1.0, model="other", generated=9.0)
    assert has_restarted(older, newer)
    same = replace(older, process_start=1.0), replace(newer, process_start=1.0)
    assert not has_restarted(*same)
    assert between(*same) is None


def test_no_time_is_no_window() -> None:
    sample = Sample(t=0.0, at=5.0, generated=5.0)
    assert between(sample, sample) is None
    assert between(sample, replace(sample, at=4.0)) is None


def test_positions_are_divided_by_the_drafts_that_had_them() -> None:
    window = Window(
        seconds=1.0,
        drafts=100.0,
        accepted_per_position=(80.0, 30.0, 0.0),
        drafted_per_position=(100.0, 50.0, 0.0),
    )
    assert window.acceptance_per_position == (0.8, 0.6, None)
    assert replace(window, drafted_per_position=None).acceptance_per_position == (0.8, 0.3, 0.0)


def test_the_share_that_threads_waited_is_of_the_time_that_they_were_watched() -> None:
    """A page may be some tenths of a second behind its time."""
    window = Window(2.0, cpu_watched=1.6, core_waited=1.2, worker_waited=0.4)
    assert window.cpu_waiting == 0.25
    assert Window(2.0, cpu_watched=1.6, core_waited=0.8).cpu_waiting == 0.5
    assert Window(2.0, cpu_watched=0.0, worker_waited=0.0).cpu_waiting is None
    assert Window(2.0).cpu_waiting is None
