"""What is not known of a figure, and falls across it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.readings import START, STATE, URL
from tests.support.recorded_engine import LiveEngine, busy_sample, record

from specdeck.engine.blackbox.falls import Fall, Silence
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.gaps import (
    Coverage,
    Gap,
    list_falls_across,
    measure_coverage,
    place_at_gap,
)
from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample

END = START + 1000


def drop_at(second: float) -> Sequence[Sample]:
    """An engine that accepts 30 tokens a second up to a moment, and 4 from then on."""
    return [
        busy_sample(n, accepted=30.0 * min(n, second) + 4.0 * max(0, n - second))
        for n in range(1000)
    ]


async def look(samples: Iterable[Sample | None], seconds: Iterable[int]) -> list[Reading]:
    """Looks at those seconds only, of one console."""
    live, every = LiveEngine(), list(samples)
    return [await live.look(START + n, every[n], STATE) for n in seconds]


async def test_a_record_without_a_gap_is_known_wholly() -> None:
    readings = await look(drop_at(500), range(1000))
    for known in measure_coverage(readings, START, END).values():
        assert known.known_s == pytest.approx(1000.0)
        assert known.gaps == ()


@pytest.mark.parametrize("every", [5, 20, 60])
async def test_seldom_readings_are_no_gaps(every: int) -> None:
    readings = await look(drop_at(500), range(0, 1000, every))
    for known in measure_coverage(readings, START, START + 960).values():
        assert known.gaps == ()


async def test_what_no_reading_tells_is_a_gap_with_its_reason() -> None:
    whole = drop_at(2000)
    down = [None if 300 <= n < 500 else one for n, one in enumerate(whole)]
    slept = await look(whole, [*range(300), *range(500, 1000)])
    stopped = [*await look(whole, range(300)), *await look(whole, range(500, 1000))]
    still = [
        busy_sample(n, drafted=50.0 * (min(n, 299) + max(0, n - 499)),
                    accepted=30.0 * (min(n, 299) + max(0, n - 499)))
        for n in range(1000)
    ]  # fmt: skip
    cases: list[tuple[list[Reading], Silence]] = [
        (await look(down, range(1000)), "down"),
        (slept, "unrecorded"),
        (stopped, "unrecorded"),
        (await look(still, range(1000)), "unknown"),
    ]
    for readings, silence in cases:
        known = measure_coverage(readings, START, END)["acceptance"]
        [gap] = known.gaps
        assert gap.silence == silence
        assert [gap.start, gap.end] == pytest.approx([START + 300, START + 500], abs=1.5)
        assert known.known_s == pytest.approx(800, abs=3)


async def test_an_empty_record_is_one_gap() -> None:
    known = measure_coverage([], START, END)
    assert known["acceptance"] == Coverage(0.0, (Gap(START, END, "unrecorded"),))


@pytest.mark.parametrize("is_one_console", [True, False])
async def test_a_figure_that_is_lower_after_a_gap_fell_in_it(
    tmp_path: Path, is_one_console: bool
) -> None:
    parts: list[Iterable[int]] = [range(300), range(700, 1000)]
    if is_one_console:
        parts = [[*parts[0], *parts[1]]]
    path = box_path(tmp_path, URL)
    readings = [one for part in parts for one in await look(drop_at(500), part)]
    record(path, readings).close()
    with closing(History(path)) as history:
        coverage = measure_coverage(history.readings(START, END), START, END)
        [fall] = list_falls_across(history, coverage)
    assert (fall.figure, fall.silence) == ("acceptance", "unrecorded")
    assert [fall.before, fall.after] == pytest.approx([0.6, 0.08])
    assert fall.since == pytest.approx(START + 299, abs=1.5)
    assert fall.t == pytest.approx(START + 700, abs=1.5)


async def test_a_figure_that_is_the_same_after_a_gap_did_not_fall(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    record(path, await look(drop_at(2000), [*range(300), *range(700, 1000)])).close()
    with closing(History(path)) as history:
        coverage = measure_coverage(history.readings(START, END), START, END)
        assert list_falls_across(history, coverage) == ()


async def test_a_fall_at_the_end_of_a_gap_is_one_in_it(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    record(path, await look(drop_at(500), [*range(480), *range(520, 1000)])).close()
    with closing(History(path)) as history:
        coverage = measure_coverage(history.readings(START, END), START, END)
        seen = Fall("acceptance", START + 521, 0.6, 0.2)
        placed = place_at_gap(history, seen, coverage)
        assert placed.since == pytest.approx(START + 479, abs=1.5)
        assert [placed.before, placed.after] == pytest.approx([0.6, 0.08])
        later = replace(seen, t=START + 560)
        assert place_at_gap(history, later, coverage) is later
