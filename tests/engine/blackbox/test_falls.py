"""A fall is one fact: its time and its figures do not hang on where it is looked at from."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from math import nan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.readings import URL

from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.falls import (
    COLUMN_S,
    REACH_S,
    SETTLED_S,
    Fall,
    list_falls,
    split_time,
)
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.summary import Extent, OverviewColumn
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import between

T0 = 1_795_200_003.0
"""No multiple of anything."""


class Seconds:
    """A record of one figure for each second; None where nothing is known."""

    def __init__(
        self, acceptance: Sequence[float | None], tokens: Sequence[float | None] | None = None
    ) -> None:
        self._acceptance = acceptance
        self._tokens = tokens if tokens is not None else [100.0] * len(acceptance)
        self.first, self.last = (T0, T0 + len(acceptance)) if acceptance else (nan, nan)

    def overview(self, start: float, end: float, columns: int) -> Sequence[OverviewColumn]:
        width = (end - start) / columns
        return [
            OverviewColumn(one, one + width, self._mean(self._tokens, one, one + width),
                           self._mean(self._acceptance, one, one + width))
            for one in (start + width * number for number in range(columns))
        ]  # fmt: skip

    def readings(self, start: float, end: float) -> Iterator[Reading]:
        """None: it has figures alone."""
        return iter(())

    def _mean(self, values: Sequence[float | None], start: float, end: float) -> Extent | None:
        first, last = max(0, round(start - T0)), max(0, round(end - T0))
        known = [value for value in values[first:last] if value is not None]
        mean = sum(known) / len(known) if known else 0.0
        return Extent(min(known), max(known), mean) if known else None


def noisy(share: float, count: int, chance: random.Random, noise: float = 0.1) -> list[float]:
    return [max(0.0, share * (1 + chance.gauss(0, noise))) for _ in range(count)]


@given(
    before=st.integers(60, 400), after=st.integers(60, 400), seed=st.integers(0, 2**32),
    start=st.integers(-300, 300), seconds=st.integers(1, 4000),
)  # fmt: skip
@settings(deadline=None)
def test_it_is_the_same_from_wherever_it_is_looked_at(
    before: int, after: int, seed: int, start: int, seconds: int
) -> None:
    chance = random.Random(seed)
    record = Seconds([*noisy(0.5, before, chance), *noisy(0.05, after, chance)])
    [fall] = list_falls(record, T0 - 7200.0, T0 + 7200.0)
    assert fall.figure == "acceptance"
    assert fall.t == pytest.approx(T0 + before, abs=1)
    assert fall.before == pytest.approx(0.5, rel=0.1)
    assert fall.after == pytest.approx(0.05, rel=0.3)
    first, last = T0 + start, T0 + start + seconds
    assert list_falls(record, first, last) == ((fall,) if first <= fall.t < last else ())


@given(st.integers(60, 200), st.integers(0, 300), st.integers(0, 2**32))
@settings(deadline=None)
def test_what_comes_later_moves_nothing_that_is_settled(after: int, more: int, seed: int) -> None:
    chance = random.Random(seed)
    grown = [
        *noisy(0.6, 200, chance), *noisy(0.3, after, chance), *noisy(chance.random(), more, chance)
    ]  # fmt: skip
    settled = T0 + 200 + after - SETTLED_S
    early = list_falls(Seconds(grown[: 200 + after]), T0, settled)
    assert list_falls(Seconds(grown), T0, settled) == early


@given(st.integers(0, 2**32), st.floats(0.0, 0.25))
@settings(deadline=None, max_examples=50)
def test_traffic_that_is_even_has_no_fall(seed: int, noise: float) -> None:
    chance = random.Random(seed)
    record = Seconds(noisy(0.5, 1800, chance, noise), noisy(100.0, 1800, chance, noise))
    assert list_falls(record, T0, T0 + 1800) == ()


@given(
    length=st.integers(1, 20_000), start=st.integers(-9_000, 20_000), seconds=st.integers(1, 30_000)
)
def test_a_long_time_is_looked_through_in_pieces_that_adjoin(
    length: int, start: int, seconds: int
) -> None:
    record = Seconds([0.5] * length)
    pieces = list(split_time(record, T0 + start, T0 + start + seconds))
    first, last = max(T0, T0 + start), min(T0 + length, T0 + start + seconds)
    if first >= last:
        assert not pieces
        return
    assert (pieces[0][0], pieces[-1][1]) == (first, last)
    for (_, end), (begin, _) in pairwise(pieces):
        assert begin == end
        assert end % COLUMN_S == 0
    assert all(0 < end - begin <= 3600 for begin, end in pieces)


def test_a_record_without_a_reading_is_not_looked_through() -> None:
    assert not list(split_time(Seconds([]), T0, T0 + 60.0))
    assert list_falls(Seconds([]), T0, T0 + 60.0) == ()


def test_a_rise_a_small_loss_and_an_engine_that_is_down_are_no_falls() -> None:
    series: tuple[Sequence[float | None], ...] = (
        [0.3] * 200 + [0.7] * 200,
        [0.7] * 200 + [0.6] * 200,
        [0.7] * 200 + [None] * 200,
        [0.7] * 200 + [0.1] * 10 + [0.7] * 200,
        [],
    )
    for values in series:
        assert list_falls(Seconds(values), T0 - 100, T0 + 500) == ()


def test_a_fall_across_a_gap_begins_where_figures_are_known_again() -> None:
    [fall] = list_falls(Seconds([0.7] * 200 + [None] * 20 + [0.1] * 200), T0, T0 + 500)
    assert T0 + 200 <= fall.t <= T0 + 220
    assert fall.before == pytest.approx(0.7)
    assert fall.after == pytest.approx(0.1)


def test_speed_that_falls_with_acceptance_is_told_once_and_alone_as_itself() -> None:
    both = Seconds([0.7] * 200 + [0.1] * 200, [400.0] * 204 + [100.0] * 196)
    assert [one.figure for one in list_falls(both, T0, T0 + 500)] == ["acceptance"]
    alone = Seconds([0.7] * 400, [400.0] * 200 + [150.0] * 200)
    [fall] = list_falls(alone, T0, T0 + 500)
    assert fall == Fall("tokens_per_second", fall.t, 400.0, 150.0)
    assert fall.t == pytest.approx(T0 + 200, abs=1)


def test_each_of_two_falls_is_told() -> None:
    found = list_falls(Seconds([0.8] * 200 + [0.4] * 200 + [0.1] * 200), T0, T0 + 700)
    assert [one.t - T0 for one in found] == [pytest.approx(200, abs=1), pytest.approx(400, abs=1)]


def sampled(share: Callable[[int], float], seconds: int) -> list[Reading]:
    drafted = accepted = generated = 0.0
    found: list[Reading] = []
    before: Sample | None = None
    for n in range(seconds):
        drafted, accepted = drafted + 100.0, accepted + 100.0 * share(n)
        generated += 20.0 + 100.0 * share(n)
        sample = Sample(T0 + n, float(n), "m", process_start=T0, drafts=20.0 * n,
                        drafted=drafted, accepted=accepted, generated=generated)  # fmt: skip
        window = None if before is None else between(before, sample)
        found.append(Reading(T0 + n, URL, sample, window))
        before = sample
    return found


def test_a_fall_of_a_black_box_is_found_to_its_second(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    box = open_box(path, URL, name="demo")
    assert box is not None
    with closing(box):
        for one in sampled(lambda n: 0.6 if n < 500 else 0.06, 900):
            box.append(one)
    with closing(History(path)) as history:
        [fall] = list_falls(history, history.first, history.last)
        assert fall.t == pytest.approx(T0 + 500, abs=1)
        reading = history.reading_at(fall.t)
        assert reading is not None
        assert reading.window is not None
        assert reading.window.acceptance_rate == pytest.approx(0.06)
        assert fall.before == pytest.approx(0.6)
        assert fall.after == pytest.approx(0.06)
        near = list_falls(history, fall.t, fall.t + 1)
        far = list_falls(history, fall.t - 100 * REACH_S, fall.t + 3 * 86_400)
        assert near == far == (fall,)
