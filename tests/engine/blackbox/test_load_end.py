"""Nothing is generated where nothing is asked for: that is no fall. What stands still is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.listed_history import ListedHistory
from tests.support.readings import START
from tests.support.recorded_engine import busy_sample, look_at, record

from specdeck.console.state.falls import Falls
from specdeck.engine.blackbox.falls import list_drops, list_falls
from specdeck.engine.blackbox.gaps import list_falls_across, measure_coverage
from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample

END = 200
"""Seconds after the start, at which the load ends."""
SECONDS = 400


def record_load(
    requests: Callable[[int], float],
    speed: Callable[[int], float] = lambda n: 20.0,
    gap: range = range(0),
    waiting: Callable[[int], float | None] = lambda n: 0.0,
    counted: bool = True,
) -> list[Reading]:
    """An engine that gives each request so many tokens a second, with 80 % of its drafts accepted;
    it does not answer in `gap`."""
    generated = 0.0
    looks: list[tuple[Sample | None, None]] = []
    for n in range(SECONDS):
        if n:
            generated += speed(n) * (requests(n - 1) + requests(n)) / 2
        sample = busy_sample(
            n, generated=generated, drafted=generated, accepted=0.8 * generated,
            drafts=generated / 5, accepted_per_position=None, drafted_per_position=None,
            running=requests(n) if counted else None, waiting=waiting(n),
        )  # fmt: skip
        looks.append((None if n in gap else sample, None))
    return look_at(looks)


def drain(seconds: int) -> Callable[[int], float]:
    """Four requests, which end one after the other in so many seconds."""
    return lambda n: 4.0 if n < END else max(0.0, float(round(4 - 4 * (n - END + 1) / seconds)))


def busy_until(last: int) -> Callable[[int], float]:
    return lambda n: 4.0 if n < last else 0.0


def list_found(readings: list[Reading]) -> list[str]:
    history = ListedHistory(readings)
    return [one.figure for one in list_falls(history, START, START + SECONDS)]


@pytest.mark.parametrize(("every", "given"), [(12, 0.0), (25, 0.0), (25, 20.0)])
def test_requests_that_still_come_and_are_given_nothing_are_no_end_of_it(
    every: int, given: float
) -> None:
    """Clients with a time limit of a second, or the probes of a router."""
    readings = record_load(
        lambda n: 4.0 if n < END or n % every < 2 else 0.0, lambda n: 20.0 if n < END else given
    )
    assert bool(list_found(readings)) is not bool(given)


def test_a_few_slower_seconds_before_the_end_are_no_fall() -> None:
    readings = record_load(busy_until(END + 3), lambda n: 20.0 if n < END else 12.0)
    assert list_found(readings) == []


@pytest.mark.parametrize("seconds", [1, 2, 5, 10, 20])
def test_the_end_of_the_load_is_no_fall(seconds: int) -> None:
    readings = record_load(drain(seconds))
    assert list_found(readings) == []
    assert list_drops(ListedHistory(readings), START, START + SECONDS)


def test_a_request_now_and_then_is_no_load() -> None:
    assert list_found(record_load(lambda n: 4.0 if n < END else float(n % 30 == 0))) == []


@pytest.mark.parametrize("slow", [0.0, 5.0])
@pytest.mark.parametrize("patience", [3, 8, 20])
def test_an_engine_that_clients_gave_up_on_fell(patience: int, slow: float) -> None:
    """It stood still, or was slow, and was left without requests for that."""
    readings = record_load(busy_until(END + patience), lambda n: 20.0 if n < END else slow)
    assert list_found(readings) == ["tokens_per_second"]


@pytest.mark.parametrize("patience", [30, 44, 60])
def test_the_end_of_the_load_hides_no_fall_before_it(patience: int) -> None:
    readings = record_load(busy_until(END + patience), lambda n: 20.0 if n < END else 12.0)
    [fall] = list_falls(ListedHistory(readings), START, START + SECONDS)
    assert fall.t == pytest.approx(START + END, abs=2.0)
    assert fall.before == pytest.approx(80.0, abs=1.0)


def test_an_engine_with_less_to_do_or_that_lets_requests_wait_fell() -> None:
    assert list_found(record_load(lambda n: 4.0 if n < END else 1.0)) == ["tokens_per_second"]
    stuck = record_load(busy_until(END), waiting=lambda n: 4.0 if n >= END else 0.0)
    assert list_found(stuck) == ["tokens_per_second"]


def test_an_engine_that_does_not_count_its_requests_fell() -> None:
    assert list_found(record_load(busy_until(END), counted=False)) == ["tokens_per_second"]
    unknown = record_load(busy_until(END), waiting=lambda n: None)
    assert list_found(unknown) == ["tokens_per_second"]
    silent = [
        replace(one, sample=None if one.sample is None else replace(one.sample, running=0.0))
        for one in record_load(busy_until(END))
    ]
    assert list_found(silent) == ["tokens_per_second"]


@pytest.mark.parametrize(("after", "fell"), [(0.0, False), (1.0, True)])
def test_an_engine_without_load_after_a_gap_did_not_fall(after: float, fell: bool) -> None:
    gap = range(END, END + 60)
    readings = record_load(lambda n: 4.0 if n < gap.start else after, gap=gap)
    history = ListedHistory(readings)
    coverage = measure_coverage(readings, START, START + SECONDS)
    found = [one.figure for one in list_falls_across(history, coverage)]
    assert ("tokens_per_second" in found) is fell


def test_the_console_does_not_list_the_end_of_the_load(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    record(path, record_load(busy_until(END)), rows=60).close()
    with closing(History(path)) as history:
        falls = Falls(history, live=False)
        for hour in falls.list_hours(START, START + SECONDS, START + SECONDS):
            falls.look_through(hour, START + SECONDS)
        assert falls.between(START, START + SECONDS) == ()
