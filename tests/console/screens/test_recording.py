"""What the console says where nothing can be asked: a recording, an engine without the plugin."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.fingerprints import Fingerprints
from tests.support.listed_history import ListedEvent, ListedHistory
from tests.support.pilot import press, run
from tests.support.readings import START
from tests.support.screen_text import screen_text

from specdeck.console.app import Console
from specdeck.console.screens.live.screen import LiveScreen
from specdeck.console.state.recorded import PlayedRecording, RecordedBox
from specdeck.console.widgets.charts import CurveBars
from specdeck.console.widgets.text import Feed, Line, Rows
from specdeck.engine.errors import Unsupported
from specdeck.engine.metrics.recording import read_recording, reading_as_json

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole

BARE = Unsupported("the engine runs without the specdeck plugin", remedy="install specdeck there")


async def instant(seconds: float) -> None:
    """No pace at all."""


@pytest.fixture
def replayed(kit: type[Kit], console: MakeConsole, tmp_path: Path) -> Callable[..., Console]:
    """A console on a recording of ten seconds."""
    tape = tmp_path / "samples.jsonl"
    tape.write_text("".join(json.dumps(reading_as_json(one)) + "\n" for one in kit.run(10)))

    def make(sleep: Callable[[float], Awaitable[None]] = instant) -> Console:
        found = read_recording(tape)
        engines = [PlayedRecording(found, url, sleep=sleep) for url in found.engines]
        return console(*engines)

    return make


def said(app: Console) -> list[str]:
    """What the first engine's events say."""
    live = next(screen for screen in app.screen_stack if isinstance(screen, LiveScreen))
    return [event.text for event in live.controller.tracks[0].events]


def shown(app: Console) -> str:
    """The words of the screen's lists."""
    rows = [row for widget in app.screen.query(Rows) for row in widget.rows]
    return "\n".join("".join(cell.text for cell in row.left) for row in rows)


@pytest.mark.parametrize("key", ["minus", "3", "t", "a", "b", "T", "w", "c"])
async def test_what_would_change_a_recording_says_that_it_is_one(
    key: str, replayed: Callable[..., Console]
) -> None:
    app = replayed()
    async with run(app) as pilot:
        await press(pilot, key)
        assert said(app)[-1] == "this is a recording: there is no engine to change"
        assert isinstance(app.screen, LiveScreen)


@pytest.mark.parametrize("key", ["d", "f", "u"])
async def test_each_screen_on_a_recording_says_that_it_is_one(
    key: str, replayed: Callable[..., Console]
) -> None:
    app = replayed()
    async with run(app) as pilot:
        await press(pilot, key)
        assert "a recording" in shown(app)
        assert "or" not in shown(app).split()
        await press(pilot, "enter", "p", "escape", "b", "v", "r", "w", "m", "x", "n")
        assert "a recording" in shown(app)
        await pilot.press("escape")
        assert isinstance(app.screen, LiveScreen)


async def test_the_names_in_the_samples_of_a_recording_are_shown(
    replayed: Callable[..., Console],
) -> None:
    app = replayed()
    async with run(app) as pilot:
        await press(pilot, "f")
        names = app.screen.query_one("#names", Rows).rows
    assert ["".join(cell.text for cell in row.left).split()[:3] for row in names] == [
        ["build", "–"],
        ["path", "sd1:0f3a9c1288aa", "as"],
        ["behaviour", "–"],
        ["vLLM's", "own", "vllm-0.32.0-09d54272"],
    ]


async def test_what_each_k_would_give_is_told_of_a_recording_too(
    kit: type[Kit], replayed: Callable[..., Console]
) -> None:
    app = replayed()
    async with run(app, size=(120, 40)) as pilot:
        await press(pilot, "u")
        curve = app.screen.query_one(CurveBars).curve
    per_step = [row.right[0][4].text.strip() for row in curve.rows]
    window = kit.run(10)[-1].window
    assert window is not None
    shares = window.acceptance_per_position
    assert shares
    expected = [1 + sum(share or 0.0 for share in shares[:k]) for k in range(len(shares) + 1)]
    assert per_step[: len(expected)] == [f"{value:.2f}" for value in expected]
    assert expected[-1] > 1.5


async def test_the_end_of_a_recording_is_told_once_at_its_own_time(
    kit: type[Kit], replayed: Callable[..., Console]
) -> None:
    app = replayed()
    async with run(app):
        assert said(app) == ["the recording ends here"]
        assert isinstance(app.screen, LiveScreen)
        assert app.screen.controller.tracks[0].events[0].t == kit.start + 9


@pytest.mark.parametrize("key", ["minus", "t", "a", "b", "T", "w"])
async def test_without_the_plugin_a_key_says_why_and_what_helps(
    key: str, kit: type[Kit], console: MakeConsole
) -> None:
    bare = [replace(one, state=None, control_error=BARE) for one in kit.run(3)]
    app = console(kit.engine(bare))
    async with run(app) as pilot:
        await press(pilot, key)
        assert said(app)[-1] == BARE.line()


async def test_without_the_plugin_tuning_says_why_and_what_helps(
    kit: type[Kit], console: MakeConsole
) -> None:
    bare = [replace(one, state=None, control_error=BARE) for one in kit.run(3)]
    app = console(kit.engine(bare))
    async with run(app) as pilot:
        await press(pilot, "u")
        told = app.screen.query_one("#status", Feed).rows
        text = "".join(cell.text for row in told for cell in row.left)
        assert "without the specdeck plugin" in text
        assert "install specdeck there" in text


@pytest.fixture
def boxed(kit: type[Kit], console: MakeConsole) -> Console:
    """A console on a black box of five minutes, a day later."""
    story = [*kit.run(200), *(kit.down(n) for n in range(200, 230)), *kit.run(70, first=230)]
    told = [
        ListedEvent(START + 200, "no answer", "down", "bad", "down"),
        ListedEvent(START + 230, "answers again after 30 s", "up", "good", "up"),
    ]
    history = ListedHistory(story, told)
    engine = RecordedBox(history, name="demo", url=history.url, speed=10.0)
    return console(engine, clock=lambda: START + 86_400)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_recording_is_named_as_one_on_every_screen(
    boxed: Console, size: tuple[int, int]
) -> None:
    async with run(boxed, size=size) as pilot:
        assert "REPLAY 2026-11-21 04:44:59 · 23 h 55 min ago" in screen_text(boxed)
        for key in ("d", "f", "u", "r"):
            await press(pilot, key)
            assert "REPLAY 2026-11-21 04:44:59" in screen_text(boxed)


async def test_a_recording_of_an_engine_that_went_opens_at_its_last_figures(
    kit: type[Kit], console: MakeConsole
) -> None:
    story = [*kit.run(200), *(kit.down(n) for n in range(200, 400))]
    told = [ListedEvent(START + 200, "no answer within 2 s", "down", "bad", "down")]
    engine = RecordedBox(ListedHistory(story, told), name="demo", url="http://a")
    app = console(engine, clock=lambda: START + 86_400)
    async with run(app, size=(80, 24)) as pilot:
        assert "REPLAY 2026-11-21 04:43:19" in screen_text(app)
        assert app.context.timeline.track.up
        footer = "".join(cell.text for cell in app.screen.query_one("#footer", Line).row.left)
        assert footer.startswith(" enter event e events y why")
        await press(pilot, "end")
        assert "REPLAY 2026-11-21 04:46:39" in screen_text(app)


async def test_an_incident_opens_at_its_first_alarm_and_a_record_of_days_at_that_of_its_last_hour(
    kit: type[Kit], console: MakeConsole
) -> None:
    told = [
        ListedEvent(START + 100, "breaker open: loses 12 %", "breaker", "bad", "breaker open"),
        ListedEvent(START + 5000, "alarm: streams repeat", "alert", "bad"),
    ]
    history = ListedHistory(kit.run(6000), told)
    for is_incident, moment in ((True, START + 100), (False, START + 5000)):
        engine = RecordedBox(history, name="demo", url="http://a", is_incident=is_incident)
        assert console(engine).context.timeline.view.t == moment


async def test_the_facts_of_an_incident_file_are_shown_with_their_moment(
    kit: type[Kit], console: MakeConsole
) -> None:
    seen = replace(Fingerprints().seen(), t=START + 90)
    for found in (seen, None):
        engine = RecordedBox(
            ListedHistory(kit.run(100)), name="demo", url="http://a", is_incident=True,
            fingerprint=found,
        )  # fmt: skip
        app = console(engine)
        async with run(app, size=(80, 24)) as pilot:
            await press(pilot, "f", "down")
            text = screen_text(app)
        if found is None:
            assert "it has names and no facts" in text
            assert "0 facts" not in text
        else:
            assert "names and facts of 2026-11-21 04:41:30, as the incident file has them" in text
            assert re.search(r"[1-9]\d* facts", text)
            assert "runtime" in text
            assert "asking the engine" not in text
            assert "no pin" not in text


async def test_a_recording_is_sought_from_its_end(boxed: Console) -> None:
    async with run(boxed, size=(80, 24)) as pilot:
        await press(pilot, "left_curly_bracket", "left_curly_bracket")
        assert "REPLAY 2026-11-21 04:43:20" in screen_text(boxed)
        assert "down at this moment: no answer within 2 s" in screen_text(boxed)
        await press(pilot, "g", *"-4m", "enter")
        assert "REPLAY 2026-11-21 04:40:59" in screen_text(boxed)
        await press(pilot, "g", *"04:41", "enter", "minus")
        assert "this is a recording: there is no engine to change" in screen_text(boxed)
        await press(pilot, "end", "right_square_bracket")
        assert "REPLAY 2026-11-21 04:44:59" in screen_text(boxed)


async def test_a_recording_is_played_at_its_speed(kit: type[Kit], console: MakeConsole) -> None:
    opened: list[Console] = []

    async def tick(seconds: float) -> None:
        if opened[0].context.timeline.view.t == START + 60:
            opened[0].context.timeline.toggle_freeze()

    engine = RecordedBox(ListedHistory(kit.run(100)), name="demo", url="http://a", speed=10.0)
    app = console(engine, sleep=tick)
    opened.append(app)
    async with run(app) as pilot:
        await press(pilot, "g", *"04:40:20", "enter", "space")
        assert app.context.timeline.view.t == START + 60


async def test_a_recording_that_plays_can_be_sought(replayed: Callable[..., Console]) -> None:
    async def never(seconds: float) -> None:
        await asyncio.get_running_loop().create_future()

    app = replayed(never)
    async with run(app, size=(80, 24)) as pilot:
        assert "REPLAY 2026-11-21 04:40:00" in screen_text(app)
        await press(pilot, "g", *"04:40:05", "enter")
        assert "REPLAY 2026-11-21 04:40:05" in screen_text(app)
        assert app.context.timeline.track.reading is not None
        await press(pilot, "end")
        assert "REPLAY 2026-11-21 04:40:09" in screen_text(app)
