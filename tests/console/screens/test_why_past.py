"""Causes of a moment of the past, out of the black box alone."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.engine_state import engine_state
from tests.support.pilot import press, run, until
from tests.support.recorded_engine import busy_sample
from tests.support.recorded_fall import FALL, record_fall
from tests.support.screen_text import screen_text
from tests.support.simulated_traffic import T0, URL, Request, Traffic
from tests.support.suffering_client import SufferingClient

from specdeck.console.cli.main import outcome
from specdeck.console.cli.why import find_options
from specdeck.console.screens.why.screen import WhyScreen
from specdeck.console.state.recorded import RecordedBox
from specdeck.console.state.why import WhyLook, format_recall
from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.paths import locations
from specdeck.engine.protocol.cohorts import Cohorts

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole

COLLAPSE, END = 3900, 4800
"""Seconds after the beginning: JSON requests collapse; nobody records any longer."""


def suffer(request: Request, t: float) -> float:
    return 0.25 if request.structured == "json" and t > COLLAPSE else 0.72


def record(folder: Path, begin: float = T0) -> Path:
    """An hour and a third: readings every ten seconds, cohorts every minute."""
    path = box_path(folder, URL)
    box = open_box(path, URL, name="demo")
    assert box is not None
    traffic = Traffic(1, accept=suffer, rate=1.5, step_s=1.0)
    with closing(box):
        for second in range(0, END + 1, 10):
            state = engine_state(instance="one", started=begin, step=40 * second)
            sample = busy_sample(second, t=begin + second, start=begin)
            box.append(Reading(begin + second, URL, sample, None, state))
            if second % 60 == 0:
                if second:
                    traffic.run(60.0, pieces=1)
                box.add_cohorts(begin + second, replace(traffic.tell(), t=begin + second))
    return path


def test_what_is_judged_again_by_the_command_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The screen names the command; both judge the same whole seconds of the same record."""
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    begin = 1_795_262_400.0  # in a year that a calendar of the command line has
    path = record(locations({"SPECDECK_HOME": str(tmp_path)}).black_boxes, begin)
    start, end = begin + COLLAPSE, begin + END - 120.0
    monkeypatch.setattr(time, "time", lambda: begin + 90_000.0)
    look = WhyLook(URL, 0.0, find_options(URL))
    with closing(History(path)) as history:
        asyncio.run(look.recall(history, start, end))
    assert look.diagnosis is not None
    words = shlex.split(format_recall(URL, start, end, time.localtime))
    assert outcome([*words[1:], "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(look.diagnosis.as_json()))


async def test_causes_of_a_recorded_moment_are_ranked_without_the_engine(
    console: MakeConsole, tmp_path: Path
) -> None:
    with closing(History(record(tmp_path))) as history:
        engine = RecordedBox(history, name="demo", url=URL)
        app = console(engine, clock=lambda: T0 + 90_000)
        async with run(app, size=(80, 24)) as pilot:
            await press(pilot, "greater_than_sign", "g", *"-10m", "enter", "y")
            screen = app.screen
            assert isinstance(screen, WhyScreen)
            await until(pilot, lambda: screen.found is not None and not screen.found.is_open)
            text = screen_text(app)
            assert "REPLAY" in text
            assert "1. " in text
            assert "json" in text
            await press(pilot, "left_square_bracket")
            assert "enter ranks the causes of this moment" in screen_text(app)
            await press(pilot, "enter")
            await until(pilot, lambda: screen.found is not None and not screen.found.is_open)
            assert "1. " in screen_text(app)


async def test_causes_of_now_are_told_against_the_time_before_the_fall_that_was_recorded(
    kit: type[Kit], console: MakeConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WhyScreen.__init__, "__kwdefaults__", {"seconds": 0.1})
    traffic = record_fall(box_path(tmp_path, URL), FALL + 240)
    engine = kit.engine([kit.reading(0)], url=URL)
    engine.client = GoingOn(engine, traffic.forget())
    app = console(engine, clock=lambda: T0 + FALL + 245, black_boxes=tmp_path)
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "y")
        screen = app.screen
        assert isinstance(screen, WhyScreen)
        await until(pilot, lambda: screen.found is not None and not screen.found.is_open)
        assert "against the black box, until 13:56:" in screen_text(app)


class GoingOn(SufferingClient):
    """An engine whose traffic goes on whenever it is looked at."""

    async def cohorts(self) -> Cohorts:
        self.traffic.run(10.0, pieces=1)
        return await super().cohorts()
