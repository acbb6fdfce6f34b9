"""A recording of JSON lines, sought as a black box is."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.readings import START, STATE, URL, down, reading, readings

from specdeck.engine.blackbox.json_history import JsonHistory, read_histories
from specdeck.engine.blackbox.patience import Patience
from specdeck.engine.errors import ConfigError
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import read_recording, reading_as_json

THREE = replace(STATE, k=3, k_set=3, version=2)
STORY = [
    *readings(20),
    *readings(10, THREE, 20),
    *(down(n) for n in range(30, 35)),
    replace(reading(35, replace(STATE, instance="b")), restarted=True, window=None),
    *readings(10, replace(STATE, instance="b", breaker="open"), 36),
]


def write(path: Path, story: list[Reading]) -> JsonHistory:
    path.write_text("".join(json.dumps(reading_as_json(one)) + "\n" for one in story))
    return JsonHistory(read_recording(path), URL)


@pytest.fixture
def history(tmp_path: Path) -> JsonHistory:
    return write(tmp_path / "samples.jsonl", STORY)


def test_every_moment_is_read_as_it_is_played(history: JsonHistory, tmp_path: Path) -> None:
    played = list(read_recording(tmp_path / "samples.jsonl").readings(URL))
    sought = [history.reading_at(one.t + 0.5) for one in STORY]
    for found, wanted in zip(sought, played, strict=True):
        assert found is not None
        assert (found.t, found.window, found.state) == (wanted.t, wanted.window, wanted.state)
        assert found.restarted is wanted.restarted
    assert history.reading_at(START - 1) is None
    assert (history.first, history.last) == (START, START + 45)
    assert [one.t for one in history.readings(START + 3, START + 5)] == [
        START + n for n in (3, 4, 5)
    ]


def test_what_happened_is_told_from_line_to_line(history: JsonHistory) -> None:
    told = [(one.t - START, one.kind, one.label) for one in history.events(START, START + 100)]
    assert told == [
        (20, "change", "k3"), (30, "down", "down"), (35, "restart", "restart"), (35, "up", "up"),
        (36, "breaker", "breaker open"),
    ]  # fmt: skip
    assert history.events(START, START + 100)[0].text == "k 5 → 3"
    found = history.next_event(START + 20)
    assert found is not None
    assert found.kind == "down"
    found = history.previous_event(START + 20)
    assert found is None
    assert [one.kind for one in history.events(START, START + 100, 2)] == ["up", "breaker"]


@given(
    start=st.floats(-10, 60), seconds=st.floats(1, 100), columns=st.integers(1, 60),
)  # fmt: skip
def test_columns_hold_the_lowest_and_highest_figures(
    start: float, seconds: float, columns: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "columns.jsonl"
    history = write(path, STORY)
    found = history.overview(START + start, START + start + seconds, columns)
    assert len(found) == columns
    rates = [
        one.window.tokens_per_second
        for one in read_recording(path).readings(URL)
        if one.window is not None and START + start <= one.t <= START + start + seconds
    ]
    known = [rate for rate in rates if rate is not None]
    drawn = [one.tokens for one in found if one.tokens is not None]
    assert min((one.low for one in drawn), default=None) == min(known, default=None)
    assert max((one.high for one in drawn), default=None) == max(known, default=None)


def test_a_window_is_the_sum_of_its_lines_and_none_across_a_restart(history: JsonHistory) -> None:
    found = history.window(START + 2, START + 12)
    assert found is not None
    assert found.seconds == 10
    lines = [one.window for one in history.readings(START + 3, START + 12)]
    assert found.generated == pytest.approx(math.fsum(one.generated or 0 for one in lines if one))
    assert found.acceptance_rate == pytest.approx(
        math.fsum(one.accepted or 0 for one in lines if one)
        / math.fsum(one.drafted or 0 for one in lines if one)
    )
    assert history.window(START + 28, START + 40) is None


def test_a_file_that_has_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    history = write(path, STORY)
    path.write_text("{}\n" * 100)
    with pytest.raises(ConfigError):
        history.reading_at(START + 30)
    path.write_text("")
    with pytest.raises(ConfigError, match="changed meanwhile"):
        history.reading_at(START + 30)


def test_a_clock_that_was_set_back_does_not_turn_time_around(tmp_path: Path) -> None:
    history = write(
        tmp_path / "samples.jsonl", [*readings(10), *readings(5), *readings(5, first=10)]
    )
    times = [one.t for one in history.readings(START, START + 100)]
    assert times == sorted(times)
    assert history.last == START + 14


def test_all_engines_are_read_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    alone = write(path, STORY)
    other = [replace(one, url="http://other:1") for one in STORY[:5]]
    path.write_text(
        path.read_text() + "".join(json.dumps(reading_as_json(one)) + "\n" for one in other)
    )
    found = read_histories(read_recording(path))
    assert set(found) == {URL, "http://other:1"}
    assert (found[URL].first, found[URL].last) == (alone.first, alone.last)
    both = [found[URL].readings(0, 1e11), alone.readings(0, 1e11)]
    ours, theirs = ([(one.t, one.window, one.state) for one in each] for each in both)
    assert ours == theirs
    assert found[URL].events(0, 1e11) == alone.events(0, 1e11)
    assert found["http://other:1"].last == START + 4


def test_a_console_waits_for_a_long_second_within_bounds(tmp_path: Path) -> None:
    now = itertools.count()
    history = write(tmp_path / "samples.jsonl", [reading(5)] * 300)
    (whole,) = history.overview(START + 5, START + 6, 1)
    assert len(list(history.readings(START, START + 6))) == 300
    history.limit_waiting(Patience(clock=lambda: float(next(now))))
    assert len(list(history.readings(START, START + 6))) < 20
    (found,) = history.overview(START + 5, START + 6, 1)
    assert found != whole
