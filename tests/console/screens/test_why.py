"""The why screen in a pilot's hands: progress at once, causes, what was ruled out, commands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.little_memory import limit_memory
from tests.support.pilot import press, run, settle
from tests.support.readings import STATE
from tests.support.simulated_traffic import Request, Traffic
from tests.support.suffering_client import SufferingClient
from textual.widgets import Input

from specdeck.console.screens.tuning.dialogs import TrialDialog
from specdeck.console.screens.why import screen as why_screen
from specdeck.console.screens.why.screen import WhyScreen
from specdeck.console.widgets.text import Line, Rows
from specdeck.engine.errors import Unsupported

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.app import App
    from textual.pilot import Pilot

Make = Callable[..., "App[str]"]


def suffer(request: Request, t: float) -> float:
    return 0.3 if request.structured == "json" else 0.72


@pytest.fixture
def suffering(
    kit: type[Kit], console: MakeConsole, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[App[str], SufferingClient]]:
    """A console on an engine whose JSON requests suffer; its whole life is looked at, at once."""
    monkeypatch.setattr(why_screen, "LOOK_S", 0.0)
    monkeypatch.setattr(WhyScreen.__init__, "__kwdefaults__", {"seconds": 0.0})

    def make(accept: Any = suffer) -> tuple[App[str], SufferingClient]:
        engine = kit.engine(kit.run(10))
        traffic = Traffic(1, rate=10.0, accept=accept).run(60)
        engine.client = client = SufferingClient(engine, traffic)
        return console(engine), client

    return make


async def open_screen(pilot: Pilot[str]) -> None:
    await settle(pilot)
    await press(pilot, "y")
    await settle(pilot)


def lines(app: App[str]) -> list[str]:
    shown = app.screen.query_one("#why", Rows).rows
    return ["".join(cell.text for cell in row.left).rstrip() for row in shown]


def above(app: App[str]) -> str:
    row = app.screen.query_one("#why-heading", Line).row
    return "".join(cell.text for cell in (*row.left, *row.right))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 20)])
def test_the_why_screen(
    size: tuple[int, int], suffering: Callable[..., Any], snap_compare: Callable[..., bool]
) -> None:
    app, _ = suffering()
    assert snap_compare(app, terminal_size=size, run_before=open_screen)


async def test_the_cause_is_first_with_its_command_and_what_was_ruled_out_below(
    suffering: Callable[..., Any],
) -> None:
    app, _ = suffering()
    async with run(app, size=(120, 40)) as pilot:
        await open_screen(pilot)
        assert isinstance(app.screen, WhyScreen)
        text = lines(app)
        title = app.screen.query_one("#why-heading", Line).row
        assert "1 cause found" in "".join(cell.text for cell in title.left)
        first = next(line for line in text if line.startswith(" 1."))
        assert "structured output json" in first
        assert any(line.startswith("    $ specdeck set ") for line in text)
        assert any("ruled out" in line for line in text)
        assert any(line.startswith(" ? ") for line in text)
        copies = app.screen.list_copies()
        assert copies[0].label.startswith("try: rules for the output")
        assert copies[0].text.startswith("specdeck set http")


async def test_without_memory_for_statistics_the_reason_is_on_the_screen(
    suffering: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_memory(monkeypatch)
    app, _ = suffering()
    async with run(app, size=(120, 40)) as pilot:
        await open_screen(pilot)
        assert "and the limit is 100 MB: raise `ulimit -v`" in " ".join(lines(app))
        assert "scipy.special" not in sys.modules


async def test_no_hint_and_no_command_stands_there_twice(suffering: Callable[..., Any]) -> None:
    def accept(request: Request, t: float) -> float:
        return 0.8 - 0.45 * request.sampled - 0.3 * (request.adapter == "sql")

    app, _ = suffering(accept)
    async with run(app, size=(140, 70)) as pilot:
        await open_screen(pilot)
        text = lines(app)
        footer = "".join(cell.text for cell in app.screen.query_one("#footer", Line).row.left)
    assert sum(line.startswith(" 2. ") for line in text) == 1
    commands = [line for line in text if line.startswith("    $ ")]
    assert len(commands) == len(set(commands)) == 1
    assert "look again" in footer
    assert not any("looks again" in line or "copies a command" in line for line in text)
    reasons = [line.rpartition(": ")[2] for line in text if line.startswith(" ? ")]
    assert len(reasons) == len(set(reasons))


async def test_it_scrolls_and_looks_again(suffering: Callable[..., Any]) -> None:
    app, client = suffering()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        top = lines(app)
        assert " more lines" in above(app)
        assert "↑" not in above(app)
        await press(pilot, "ctrl+end")
        assert lines(app) != top
        assert "↑" in above(app)
        assert "↓" not in above(app)
        assert lines(app)[-1].startswith(" ! tuning")
        await press(pilot, "home")
        assert lines(app) == top
        client.traffic = Traffic(2, rate=10.0).run(60)
        await press(pilot, "enter")
        assert any("no cause found" in line for line in lines(app))
        await press(pilot, "escape")
        assert not isinstance(app.screen, WhyScreen)


async def test_it_opens_with_its_progress_before_there_is_a_cause(
    suffering: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WhyScreen.__init__, "__kwdefaults__", {"seconds": 3600.0})
    app, _ = suffering()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        assert "requests finished" in lines(app)[0] or "asking the engine" in lines(app)[0]
        await press(pilot, "escape")
        assert not isinstance(app.screen, WhyScreen)


async def test_an_engine_that_tells_no_cohorts_says_why(suffering: Callable[..., Any]) -> None:
    app, client = suffering()
    client.refuse = Unsupported("the plugin is older", remedy="update specdeck there")
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        assert "the plugin is older" in lines(app)[0]
        client.refuse = None
        await press(pilot, "enter")
        assert any(line.startswith(" 1.") for line in lines(app))


async def test_without_a_suggestion_the_k_that_is_set_is_filled_in(
    suffering: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = suffering()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        monkeypatch.setattr(app.screen.controller, "find_obstacle", lambda change: None)
        monkeypatch.setattr("specdeck.console.screens.why.view.suggest_trial", lambda look: None)
        controller = app.screen.controller
        controller.put(0, replace(controller.track, known=replace(STATE, k_set=3)))
        await press(pilot, "T")
        assert isinstance(app.screen, TrialDialog)
        assert app.screen.query_one("#what", Input).value == "k=3"
        await press(pilot, "escape")
        heading = app.screen.query_one("#why-heading", Line).row
        assert "no cause suggests a trial" in "".join(cell.text for cell in heading.right)


async def test_what_a_cause_suggests_is_one_key_away_from_a_trial(
    suffering: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second T comes at once, and not after a look at what is said.
    monkeypatch.setattr("specdeck.console.screens.engine_screen.TYPING_S", 0.0)
    app, _ = suffering()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        await press(pilot, "T")
        heading = app.screen.query_one("#why-heading", Line).row
        assert "plugin" in "".join(cell.text for cell in heading.right)  # why it cannot be tried
        monkeypatch.setattr(app.screen.controller, "find_obstacle", lambda change: None)
        await press(pilot, "T")
        assert isinstance(app.screen, TrialDialog)
        assert app.screen.query_one("#what", Input).value == (
            "policy=goodput goodput.rest_rounds=16"
        )
        await press(pilot, "escape")
        assert isinstance(app.screen, WhyScreen)


async def test_what_was_suggested_before_can_be_tried_while_the_engine_is_watched_anew(
    suffering: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a look back: the cause was found in the past, and a trial is of now."""
    app, _ = suffering()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        screen = app.screen
        assert isinstance(screen, WhyScreen)
        monkeypatch.setattr(screen.controller, "find_obstacle", lambda change: None)
        screen.seconds = 3600.0
        await press(pilot, "enter")
        assert screen.found is not None
        assert screen.found.is_open
        await press(pilot, "T")
        assert app.screen.query_one("#what", Input).value == (
            "policy=goodput goodput.rest_rounds=16"
        )
        await press(pilot, "escape")
        assert "shown before" in above(app)
