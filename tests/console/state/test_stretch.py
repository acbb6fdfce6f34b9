"""Columns of charts: nothing between two columns is lost, and charts stand still."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listed_history import ListedHistory
from tests.support.readings import START, URL, readings

from specdeck.console.state.engine_state import ChartPoint, Track
from specdeck.console.state.stretch import fold_recent, join_stretches, read_stretch


def track(values: list[float | None], apart: float = 1.0) -> Track:
    points = tuple(ChartPoint(START + n * apart, v, None) for n, v in enumerate(values))
    return Track("demo", URL, points=points, total=len(points))


@given(
    values=st.lists(st.one_of(st.none(), st.floats(0.0, 1e6)), min_size=1, max_size=200),
    seconds=st.sampled_from((60.0, 300.0, 900.0)),
    columns=st.integers(1, 80),
)
def test_the_lowest_and_highest_value_on_the_charts_are_those_of_the_readings(
    values: list[float | None], seconds: float, columns: int
) -> None:
    found = fold_recent(track(values), seconds, columns)
    assert len(found.tokens) == columns
    inside = [
        value
        for n, value in enumerate(values)
        if value is not None and START + n >= found.start - 1e-6
    ]
    drawn = [one for one in found.tokens if one is not None]
    assert min((one.low for one in drawn), default=None) == min(inside, default=None)
    assert max((one.high for one in drawn), default=None) == max(inside, default=None)
    assert found.acceptance == (None,) * columns


def test_from_one_reading_to_the_next_only_the_last_column_changes() -> None:
    values: list[float | None] = [float(n * 37 % 101) for n in range(400)]
    moved = 0
    before = fold_recent(track(values[:200]), 120.0, 30)
    for count in range(201, 400):
        after = fold_recent(track(values[:count]), 120.0, 30)
        if after.start == before.start:
            changed = [n for n in range(30) if before.tokens[n] != after.tokens[n]]
            assert len(changed) <= 1
            last = max(n for n in range(30) if after.tokens[n] is not None)
            assert changed in ([], [last])
        else:
            moved += 1
        before = after
    assert moved <= 200 / (120 / 30 * 7) + 1


def test_what_memory_lacks_comes_from_the_record() -> None:
    history = ListedHistory(readings(100))
    recent = fold_recent(track([1.0] * 10), 60.0, 30)
    earlier = read_stretch(history, recent.start, 20.0, 10)
    found = join_stretches(earlier, recent)
    assert found.tokens == (*earlier.tokens, *recent.tokens[10:])
    assert found.start == recent.start
    assert history.asked == [(recent.start, recent.start + 20.0, 10)]


def test_columns_narrower_than_readings_are_apart_have_no_holes() -> None:
    values: list[float | None] = [float(n) for n in range(1, 61)]
    live = fold_recent(track(values), 60.0, 72).tokens
    past = read_stretch(ListedHistory(readings(60)), START + 2, 57.0, 70).tokens
    for drawn in (live, past):
        known = [n for n, one in enumerate(drawn) if one is not None]
        assert len(known) > 50
        assert known == list(range(known[0], known[-1] + 1))


def test_a_column_without_a_reading_shows_the_nearest_one() -> None:
    values: list[float | None] = [float(n) for n in range(100)]
    found = fold_recent(track(values), 12.0, 36)
    for column, one in enumerate(found.tokens):
        middle = found.start + (column + 0.5) / 3
        if one is not None:
            assert abs(START + one.low - middle) < 0.7


@pytest.mark.parametrize("columns", [30, 72, 144])
def test_a_time_without_readings_stays_blank(columns: int) -> None:
    points = tuple(ChartPoint(START + n, 10.0, 0.5) for n in range(60) if not 30 <= n < 40)
    found = fold_recent(Track("demo", URL, points=points, total=len(points)), 60.0, columns)
    blank = [
        n
        for n, one in enumerate(found.tokens)
        if one is None and START < found.start + n * 60.0 / columns < START + 58
    ]
    assert 8 * columns / 60 <= len(blank) <= 11 * columns / 60
    assert blank == list(range(blank[0], blank[-1] + 1))
    assert found.start + blank[0] * 60.0 / columns >= START + 29


def test_a_reading_of_an_engine_that_is_down_stays_a_gap() -> None:
    values: list[float | None] = [10.0] * 30 + [None] + [10.0] * 29
    found = fold_recent(track(values), 60.0, 72)
    column = next(n for n in range(72) if found.start + (n + 1) * 60 / 72 > START + 30 + 1e-6)
    assert found.tokens[column] is None
    assert found.tokens[column - 2] is not None is not found.tokens[column + 2]
