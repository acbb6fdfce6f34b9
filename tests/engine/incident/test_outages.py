"""An engine that ended after its load had: the file is about that, and blames nothing for less."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.incident.test_case import section
from tests.support.incident_engine import cohorts_at
from tests.support.readings import START, STATE, URL
from tests.support.recorded_engine import busy_sample, look_at, record

from specdeck.console.cli.incident import summary_lines
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.incident.collect import Sources, assemble
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.page import write_page
from specdeck.engine.incident.write import Written
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.protocol.messages import EngineState

SECONDS = 600
LOAD_END = 300
"""Seconds after the start."""
DEATH = 480


def collect(tmp_path: Path, *, load_end: int = LOAD_END, back: int = SECONDS) -> Material:
    """An engine that has next to nothing accepted of sampled requests all the time, and does not
    answer from `DEATH` until `back`, when another start of it does."""
    looks: list[tuple[Sample | None, EngineState | None]] = []
    for n in range(SECONDS):
        busy = float(min(n, load_end))
        sample = busy_sample(
            n, drafts=10 * busy, drafted=50 * busy, accepted=30 * busy, generated=40 * busy,
            prompt=400 * busy, accepted_per_position=None, drafted_per_position=None,
            running=4.0 if n < load_end else 0.0,
        )  # fmt: skip
        state = replace(STATE, step=int(10 * busy), running=4 if n < load_end else 0)
        if n >= back:
            sample = replace(sample, process_start=START + back, generated=0.0, running=0.0)
            state = replace(state, instance="two", step=0)
        looks.append((None, None) if DEATH <= n < back else (sample, state))
    path = box_path(tmp_path, URL)
    with closing(record(path, look_at(looks), rows=60)) as box:
        for n in range(0, DEATH, 60):
            told = cohorts_at(min(n, load_end), fall=0)
            box.add_cohorts(START + n, replace(told, t=START + n))
    span = Span(START, START + SECONDS)
    with closing(History(path)) as history:
        return assemble(Sources(URL, "demo", history=history), span, None, written=span.end)


def list_short(made: Material) -> list[str]:
    return "\n".join(section(write_page(made, (), time.gmtime), "In short")).splitlines()


def clock(n: int) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(START + n))


@pytest.fixture
def died(tmp_path: Path) -> Material:
    return collect(tmp_path)


def test_the_end_of_the_load_is_told_as_such_and_given_no_cause(died: Material) -> None:
    assert died.falls == ()
    assert died.slides == ()
    [end] = died.load_ends
    assert end.t == pytest.approx(START + LOAD_END, abs=2.0)
    assert died.diagnosis is not None
    assert died.diagnosis.causes
    short = "\n".join(list_short(died))
    assert "The load ended at" in short
    assert "tokens/s fell from" not in short
    assert "cause" not in short
    assert "sampled" not in short
    page = write_page(died, (), time.gmtime)
    assert "made no fall" in "\n".join(section(page, "Why"))
    assert "the load ended" in "\n".join(section(page, "What happened"))


def test_the_death_of_an_engine_that_did_not_fall_stands_first(died: Material) -> None:
    assert died.pivot == pytest.approx(START + DEATH, abs=1.0)
    first = next(line for line in list_short(died) if line)
    assert first == f"- The engine did not answer from {clock(DEATH)} to the end of the recording."
    lines = summary_lines(died, Written(Path("a.zip"), 0, (), died.readings, {}))
    assert "did not answer from" in lines[1]
    assert not [line for line in lines if "fell" in line]


def test_a_restart_stands_first_where_nothing_fell(tmp_path: Path) -> None:
    made = collect(tmp_path, back=DEATH + 60)
    first = next(line for line in list_short(made) if line)
    assert first == f"- The engine was restarted at {clock(DEATH + 60)}."
    lines = summary_lines(made, Written(Path("a.zip"), 0, (), made.readings, {}))
    assert [line for line in lines if "the engine was restarted at" in line]


def test_what_costs_speed_where_nothing_fell_is_no_cause_of_a_fall(tmp_path: Path) -> None:
    died = collect(tmp_path, load_end=SECONDS)
    alive = replace(died, downs=(), is_down_at_end=False)
    assert "cause" not in "\n".join(list_short(died))
    short = "\n".join(list_short(alive))
    assert "What costs speed, though nothing fell: " in short
    assert "sampled requests" in short


def test_requests_of_a_whole_life_are_none_that_came_after(died: Material) -> None:
    assert died.kinds is not None
    assert not died.kinds.are_apart
    assert died.case is None
    assert "New since then" not in "\n".join(list_short(died))
