"""The requests screen in a pilot's hands: what it lists, how it is sorted and searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest
from tests.support.pilot import press, run, settle
from tests.support.requests_engine import ACTIVE, FINISHED, TOLD, RequestsClient
from textual.widgets import Input

from specdeck.console.screens.requests import view
from specdeck.console.screens.requests.screen import RequestsScreen
from specdeck.console.state.engine_state import Track
from specdeck.console.widgets.text import Line, Rows
from specdeck.engine.errors import SpecdeckError, Unsupported
from specdeck.engine.protocol.requests import RequestLine, Requests

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.app import App
    from textual.pilot import Pilot

MakeRequests = Callable[..., "tuple[App[str], RequestsClient]"]


@pytest.fixture
def listing(kit: type[Kit], console: MakeConsole) -> MakeRequests:
    """A console on an engine that tells its requests, and that engine's client."""

    def make(told: Requests | SpecdeckError = TOLD) -> tuple[App[str], RequestsClient]:
        engine = kit.engine(kit.run(10))
        engine.client = client = RequestsClient(engine, told)
        return console(engine), client

    return make


async def open_screen(pilot: Pilot[str]) -> None:
    await settle(pilot)
    await press(pilot, "r")


def lines(app: App[str]) -> list[str]:
    shown = app.screen.query_one("#requests", Rows).rows
    return ["".join(cell.text for cell in row.left).rstrip() for row in shown]


def numbers(app: App[str]) -> list[int]:
    """Of the requests that are listed, in their order."""
    found = (line.split()[0] for line in lines(app) if line.strip())
    return [int(word) for word in found if word.isdecimal()]


def hidden(app: App[str]) -> str:
    """What the heading says of lines that are not shown."""
    right = app.screen.query_one("#requests-heading", Line).row.right
    return "".join(cell.text for cell in right).strip()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 20)])
def test_the_requests_screen(
    size: tuple[int, int], listing: MakeRequests, snap_compare: Callable[..., bool]
) -> None:
    app, _ = listing()
    assert snap_compare(app, terminal_size=size, run_before=open_screen)


async def test_it_lists_what_runs_and_below_it_what_has_finished(listing: MakeRequests) -> None:
    app, _ = listing()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        assert isinstance(app.screen, RequestsScreen)
        assert numbers(app)[:5] == [42, 41, 43, 44, 8]  # the oldest first; 8 more wait
        oldest, second, preempted, waiting, hidden, heading, last, _ = lines(app)
        assert oldest.split()[1:8] == ["running", "1", "min", "15", "s", "60.0k", "9"]
        assert oldest.endswith("sql-v2 sampled cached 0%")
        assert "74 %" in second
        assert second.split()[6] == "5"  # the engine's k
        assert preempted.split()[6] == "2"  # its own
        assert "preempted 1x" in preempted
        assert "–" in waiting
        assert "8 more wait" in hidden
        assert "finished" in heading
        assert last.split()[:2] == ["40", "stop"]
        title = app.screen.query_one("#requests-heading", Line).row
        assert "3 running, 9 waiting  by age" in "".join(cell.text for cell in title.left)


async def test_acceptance_of_the_finished_is_told_by_token_and_by_request(
    listing: MakeRequests,
) -> None:
    # 10 of 100 tokens of a long answer, and all 4 of a short one's.
    long = replace(FINISHED[0], drafted=100, accepted=10)
    short = replace(FINISHED[1], drafted=4, accepted=4)
    app, _ = listing(replace(TOLD, finished=(long, short)))
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        rows = app.screen.query_one("#requests", Rows).rows
        told = [text for row in rows if "by token" in (text := "".join(c.text for c in row.right))]
        assert told == [" by token 13 % · by request 55 %"]


def test_drafts_that_cancel_out_have_no_average() -> None:
    finished = (replace(FINISHED[0], drafted=5), replace(FINISHED[1], drafted=-5))
    track = replace(Track("engine", "http://e"), requests=replace(TOLD, finished=finished))
    rows = view.rows(track, "age", "", 120, str)
    assert any("finished, the newest first" in cell.text for row in rows for cell in row.left)


async def test_it_is_sorted_by_each_figure_in_turn(listing: MakeRequests) -> None:
    app, _ = listing()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        found = []
        for _ in range(3):
            await press(pilot, "o")
            found.append(numbers(app)[:4])
        # By prompt, by output, and by acceptance, the poorest first.
        assert found == [[42, 41, 43, 44], [41, 43, 42, 44], [42, 41, 43, 44]]
        await press(pilot, "o")
        assert numbers(app)[:4] == [42, 41, 43, 44]


async def test_a_search_finds_kinds_and_escape_ends_it_before_the_screen(
    listing: MakeRequests,
) -> None:
    app, _ = listing()
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        await press(pilot, "slash", *"sql")
        assert [n for n in numbers(app) if n > 30] == [42, 39]
        await press(pilot, "enter")
        assert app.screen.query_one("#search", Input).value == "sql"
        await press(pilot, "escape")
        assert len([n for n in numbers(app) if n > 30]) == 6
        await press(pilot, "slash", *"nonsense", "enter")
        assert "none matches" in lines(app)[1]
        await press(pilot, "escape", "escape")
        assert not isinstance(app.screen, RequestsScreen)


async def test_more_than_fit_are_scrolled_through_and_no_further(listing: MakeRequests) -> None:
    many = tuple(replace(ACTIVE[0], number=n, age_s=1000.0 - n) for n in range(1, 101))
    app, _ = listing(replace(TOLD, active=many, running=100, waiting=0, finished=()))
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        assert numbers(app)[0] == 1
        assert hidden(app) == f"↓ {len(many) - numbers(app)[-1]} more lines"
        await press(pilot, "ctrl+end")
        assert numbers(app)[-1] == 100
        assert hidden(app) == f"↑ {numbers(app)[0] - 1}"
        await press(pilot, "down", "down", "up")
        assert numbers(app)[-1] == 99
        await press(pilot, "home")
        assert numbers(app)[0] == 1


async def test_an_engine_that_tells_no_requests_says_why(listing: MakeRequests) -> None:
    app, client = listing(Unsupported("the plugin is older", remedy="update specdeck there"))
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        assert "the plugin is older" in lines(app)[0]
        client.told = TOLD
        screen = app.screen
        assert isinstance(screen, RequestsScreen)
        screen.look()
        await settle(pilot)
        assert numbers(app)[0] == 42


async def test_what_an_adapter_is_called_reaches_no_terminal(listing: MakeRequests) -> None:
    app, _ = listing(replace(TOLD, active=(replace(ACTIVE[0], adapter="a\x1b[2J"),), finished=()))
    async with run(app, size=(80, 24)) as pilot:
        await open_screen(pilot)
        drawn = app.screen.query_one("#requests", Rows).render_line(0)
        assert "\x1b" not in "".join(segment.text for segment in drawn)


def test_a_request_is_told_without_prompt_text_or_id() -> None:
    assert not {"prompt", "text", "id", "request_id"} & {each.name for each in fields(RequestLine)}
