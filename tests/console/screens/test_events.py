"""The list of events: all of them, by their words, while others come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.pilot import press, run, settle
from tests.support.screen_text import screen_text
from textual.widgets import OptionList

from specdeck.console.screens.events.screen import EventsScreen
from specdeck.console.state.engine_state import LONGEST_EVENT

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.app import App


def listed(app: App[Any]) -> list[str]:
    screen = app.screen
    assert isinstance(screen, EventsScreen)
    return [event.text for event in screen.listed]


async def test_five_hundred_events_are_kept_and_the_first_one_is_reached(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24)) as pilot:
        for number in range(500):
            app.controller.tell(f"event number {number}")
        await press(pilot, "e")
        assert len(listed(app)) == 500
        assert "event number 499" in screen_text(app)
        assert "event number 0" not in screen_text(app)
        await press(pilot, "end")
        assert "event number 0" in screen_text(app)
        await press(pilot, "escape")
        assert not isinstance(app.screen, EventsScreen)


async def test_an_event_is_wrapped_below_itself_and_the_keys_fit_a_line(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24)) as pilot:
        app.controller.tell(" ".join(f"word{number}" for number in range(30)))
        await press(pilot, "e")
        options = app.screen.query_one(OptionList)
        first, *more = str(options.get_option_at_index(0).prompt).splitlines()
        assert more
        assert {line.index("word") for line in (first, *more)} == {first.index("word0")}
        assert len(first) > 60
        assert options.virtual_size.height == len((first, *more))
        assert app.screen.query_one("#keys").size.height == 1


async def test_events_are_searched_by_their_words(kit: type[Kit], console: MakeConsole) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24)) as pilot:
        for text in ("ann changed k 5 → 3", "the engine was restarted", "bob changed k 3 → 4"):
            app.controller.tell(text)
        await press(pilot, "e", "slash", *"k bob")
        assert listed(app) == ["bob changed k 3 → 4"]
        assert '"k bob": 1 of 3' in screen_text(app)
        await press(pilot, "escape")
        assert len(listed(app)) == 3
        await press(pilot, "escape")
        assert not isinstance(app.screen, EventsScreen)


async def test_the_cursor_stays_on_its_event_while_others_come(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24)) as pilot:
        for number in range(5):
            app.controller.tell(f"event {number}")
        await press(pilot, "e", "down", "down")
        app.controller.tell("another one")
        await settle(pilot)
        at = app.screen.query_one(OptionList).highlighted
        assert at is not None
        assert listed(app)[at] == "event 2"


async def test_an_event_ends_where_nobody_reads_on(kit: type[Kit], console: MakeConsole) -> None:
    """Each is laid out anew whenever another one comes: a foreign one has 250,000 characters."""
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24)) as pilot:
        for number in range(3):
            app.controller.tell(f"{number} " + "k 5 → 3 " * 5_000)
        app.controller.tell("a reason of " + "x" * 500)
        await press(pilot, "e")
        cut = [text for text in listed(app) if text.endswith("…")]
        assert [text[:9] for text in cut] == ["2 k 5 → 3", "1 k 5 → 3", "0 k 5 → 3"]
        assert {len(text) for text in cut} == {LONGEST_EVENT}
        assert "a reason of " + "x" * 500 in listed(app)
