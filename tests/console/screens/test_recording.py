"""What the console says where nothing can be asked: a recording, an engine without the plugin."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.pilot import press, run

from specdeck.console.app import Console
from specdeck.console.screens.live.screen import LiveScreen
from specdeck.console.widgets.charts import CurveBars
from specdeck.console.widgets.text import Feed, Rows
from specdeck.engine.errors import Unsupported
from specdeck.engine.metrics.recording import ReplayedEngine, read_recording, reading_as_json

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
        engines = [ReplayedEngine(found, url, sleep=sleep) for url in found.engines]
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
        await press(pilot, "enter", "p", "escape", "b", "g", "v", "r", "w", "m", "x", "n")
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
