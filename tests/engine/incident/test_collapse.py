"""When a figure fell for good."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.blackbox.summary import Extent, OverviewColumn
from specdeck.engine.incident.collapse import find_fall


def columns(values: Sequence[float | None], width: float = 10.0) -> list[OverviewColumn]:
    return [
        OverviewColumn(
            n * width, (n + 1) * width, None,
            None if value is None else Extent(value, value, value),
        )
        for n, value in enumerate(values)
    ]  # fmt: skip


@given(st.integers(6, 80), st.integers(6, 80), st.integers(0, 2**32))
def test_a_fall_is_found_where_it_is(before: int, after: int, seed: int) -> None:
    chance = random.Random(seed)
    values = [0.7 + chance.gauss(0, 0.02) for _ in range(before)]
    values += [0.3 + chance.gauss(0, 0.02) for _ in range(after)]
    fall = find_fall(columns([*values]), "acceptance")
    assert fall is not None
    assert abs(fall.t - before * 10.0) <= 10.0  # a column; noise may move it by one
    assert fall.before == pytest.approx(0.7, abs=0.05)
    assert fall.after == pytest.approx(0.3, abs=0.05)


def test_noise_a_rise_and_a_small_loss_are_no_fall() -> None:
    chance = random.Random(1)
    series: tuple[list[float], ...] = (
        [0.6 + chance.gauss(0, 0.05) for _ in range(100)],
        [0.3] * 30 + [0.7] * 30,
        [0.70] * 30 + [0.66] * 30,
        [0.7, 0.2],
        [],
    )
    for values in series:
        assert find_fall(columns([*values]), "acceptance") is None


def test_an_engine_that_is_down_has_not_accepted_less() -> None:
    assert find_fall(columns([0.7] * 20 + [None] * 20), "acceptance") is None
    fall = find_fall(columns([0.7] * 20 + [None] * 3 + [0.2] * 20), "acceptance")
    assert fall is not None
    assert fall.t == 230.0


def test_the_largest_of_two_falls_is_told() -> None:
    fall = find_fall(columns([0.8] * 30 + [0.7] * 30 + [0.1] * 30), "acceptance")
    assert fall is not None
    assert fall.t == 600.0


def test_a_week_of_minutes_is_looked_through_at_once() -> None:
    chance = random.Random(1)
    values = [0.7 + chance.gauss(0, 0.02) for _ in range(9_000)]
    values[8_000:] = [0.5 + chance.gauss(0, 0.02) for _ in range(1_000)]
    fall = find_fall(columns([*values], width=60.0), "acceptance")
    assert fall is not None
    assert fall.t == 8_000 * 60.0
