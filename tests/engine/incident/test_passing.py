"""What went by: acceptance that was lost and came back, and an engine that stood still."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.incident.test_case import section
from tests.support.incident_engine import cohorts_at
from tests.support.readings import START, STATE, URL
from tests.support.recorded_engine import busy_sample, look_at, record

from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.summary import Extent, OverviewColumn
from specdeck.engine.incident.collect import Sources, assemble
from specdeck.engine.incident.dips import find_dips, list_dips
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.page import write_page
from specdeck.engine.incident.stalls import Stall, StallWatch
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.why.causes import Cause, Figure
from specdeck.engine.why.figures import Estimate
from specdeck.engine.why.past import recall
from specdeck.engine.why.ranking import diagnose

SECONDS = 600
LOST = range(300, 330)
"""Seconds in which next to nothing is accepted; from their beginning on the engine is slower."""
STILL = range(450, 500)
"""Seconds without a step, in which the plugin says nothing."""


def readings(*, waiting: float = 0.05) -> list[Reading]:
    """An engine of which all that is recorded; its worker waits so much of the time for a CPU."""
    accepted = generated = drafted = step = 0.0
    looks = []
    for n in range(SECONDS):
        still = n in STILL
        made = 0.0 if still else 10.0 if n < LOST.start else 5.0
        drafted, step = drafted + 40.0 * made / 10, step + made
        taken = 40.0 * made / 10 * (0.02 if n in LOST else 0.9)
        accepted, generated = accepted + taken, generated + made + taken
        sample = busy_sample(
            n, drafts=step, drafted=drafted, accepted=accepted, generated=generated,
            accepted_per_position=None, drafted_per_position=None, running=16.0,
            cpu_watched=float(n), core_ran=0.1 * n, core_waited=0.01 * n, worker_ran=0.3 * n,
            worker_waited=waiting * n,
        )  # fmt: skip
        looks.append((sample, None if still else replace(STATE, step=int(step))))
    return look_at(looks)


def write(path: Path, found: list[Reading]) -> None:
    with closing(record(path, found, rows=60)) as box:
        for n in range(0, SECONDS, 60):
            box.add_cohorts(START + n, cohorts_at(n, fall=SECONDS))


@pytest.fixture
def made(tmp_path: Path) -> Material:
    path = box_path(tmp_path, URL)
    write(path, readings())
    with closing(History(path)) as history:
        span = Span(START, START + SECONDS)
        return assemble(Sources(URL, "demo", history=history), span, None, written=span.end)


def test_acceptance_that_came_back_is_told_beside_the_fall_of_the_speed(made: Material) -> None:
    assert [one.figure for one in made.falls] == ["tokens_per_second"]
    [dip] = made.dips
    assert dip.start == pytest.approx(START + LOST.start, abs=1.5)
    assert dip.end == pytest.approx(START + LOST.stop, abs=1.5)
    assert (dip.before, dip.low) == pytest.approx((0.9, 0.02), abs=0.01)
    page = write_page(made, (), time.gmtime)
    for name in ("In short", "What happened"):
        words = section(page, name)[0]
        assert "acceptance fell from 90% to 2% for 30 s and came back" in words
        assert "did not fall" not in words


def test_a_stretch_without_a_token_is_told(made: Material) -> None:
    [stall] = made.stalls
    assert stall.start == pytest.approx(START + STILL.start, abs=1.5)
    assert stall.seconds == pytest.approx(len(STILL), abs=1.5)
    assert (stall.running, stall.answered) == (16, False)
    page = write_page(made, (), time.gmtime)
    for name in ("In short", "What happened"):
        assert "while 16 requests ran; the engine core did not answer" in "\n".join(
            section(page, name)
        )


def test_the_headline_names_no_cause_that_began_after_the_fall(made: Material) -> None:
    assert made.fall is not None
    assert made.diagnosis is not None
    cost = Estimate(0.5, 0.4, 0.6)
    seen = Figure("step_ms", 200.0, 100.0)
    late = Cause("step_time_latched", seen, cost, cost, since=made.fall.t + 200)
    held = Cause("preemption", seen, cost, cost)
    made.case = None
    made.diagnosis = replace(made.diagnosis, causes=(late,))
    short = "\n".join(section(write_page(made, (), time.gmtime), "In short"))
    assert "likeliest" not in short
    assert "No cause of that fall was found" in short
    made.diagnosis = replace(made.diagnosis, causes=(late, held))
    short = "\n".join(section(write_page(made, (), time.gmtime), "In short"))
    assert "The likeliest cause: requests are preempted" in short


def test_the_causes_are_judged_by_the_same_evidence_as_those_of_why(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    write(path, readings(waiting=0.6))
    with closing(History(path)) as history:
        span = Span(START, START + SECONDS)
        made = assemble(Sources(URL, "demo", history=history), span, None, written=span.end)
        told = diagnose(recall(history, span.start, span.end))
    assert made.diagnosis is not None
    assert "cpu_contention" in {one.name for one in told.causes}
    assert "cpu_contention" in {one.name for one in made.diagnosis.causes}
    names = {one.name for one in made.diagnosis.untold if one.reason == "no_waiting"}
    assert names == set()


def columns(values: Sequence[float | None]) -> list[OverviewColumn]:
    return [
        OverviewColumn(
            5.0 * n, 5.0 * n + 5, None, None if value is None else Extent(value, value, value)
        )
        for n, value in enumerate(values)
    ]


@given(st.integers(0, 2**32), st.floats(0.02, 0.2))
def test_noise_is_no_dip(seed: int, spread: float) -> None:
    chance = random.Random(seed)
    values = [max(0.0, 0.7 + chance.uniform(-spread, spread)) for _ in range(200)]
    assert find_dips(columns(values)) == []


@given(st.integers(4, 60), st.integers(2, 20), st.integers(1, 30), st.booleans())
def test_a_dip_is_found_where_it_is(before: int, low: int, after: int, gap: bool) -> None:
    lost: list[float | None] = [0.02] * low
    if gap:
        lost[1:1] = [None] * 2
    [dip] = find_dips(columns([0.8] * before + lost + [0.8] * after))
    assert (dip.start, dip.end) == (5.0 * before, 5.0 * (before + len(lost)))
    assert (dip.before, dip.low) == pytest.approx((0.8, 0.02))


def test_what_does_not_come_back_or_lasts_a_column_is_no_dip() -> None:
    assert find_dips(columns([0.8] * 20 + [0.02] * 20)) == []
    assert find_dips(columns([0.8] * 20 + [0.02] + [0.8] * 20)) == []
    assert find_dips(columns([0.02] * 20 + [0.8] * 20)) == []
    assert find_dips([]) == []


def test_an_empty_record_has_no_dip(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    record(path, []).close()
    with closing(History(path)) as history:
        assert list_dips(history, START, START + 60) == ()


def watch(found: list[Reading]) -> list[Stall]:
    stalls = StallWatch()
    for one in found:
        stalls.add(one)
    stalls.end()
    return stalls.found


def test_an_idle_engine_and_one_that_computes_prompts_do_not_stall() -> None:
    still = [busy_sample(n, generated=100.0) for n in range(60)]
    assert len(watch(look_at((one, STATE) for one in still))) == 1
    idle = [replace(one, running=0.0) for one in still]
    assert watch(look_at((one, STATE) for one in idle)) == []
    steps = [(one, replace(STATE, step=n)) for n, one in enumerate(still)]
    assert watch(look_at(steps)) == []
    assert watch(look_at((one, STATE) for one in still[:9])) == []


def test_an_engine_that_is_down_does_not_stall() -> None:
    down = look_at([(busy_sample(1), STATE), *[(None, None)] * 60])
    assert watch(down) == []
