"""Keys that come in one write do the same as keys that are waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.console.conftest import Kit, MakeConsole
from tests.support.pilot import press, run, settle, type_at_once
from tests.support.tuned_engine import ABLE, TunedClient, TunedEngine, tuning
from textual.events import Key, MouseDown, MouseUp, Paste
from textual.message_pump import MessagePump
from textual.widgets import Input, OptionList

from specdeck.console.key_order import KeyFollower, KeyOrder
from specdeck.console.screens.fingerprint.dialogs import AgainstScreen, Side
from specdeck.console.screens.fingerprint.screen import FingerprintScreen
from specdeck.console.screens.tuning.dialogs import ValueDialog
from specdeck.console.widgets.search import SearchField


async def test_what_is_typed_right_after_the_key_of_a_search_is_searched(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "f", "slash", *"u1t 0q")
        await settle(pilot)
        assert isinstance(app.screen, FingerprintScreen)
        assert app.screen.query_one(SearchField).value == "u1t 0q"
    assert engine.asked == []


async def test_input_waits_for_the_key_before_it_and_keeps_its_order(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with run(app) as pilot:
        type_at_once(app, "f", "slash", *"the quick brown fox 0123456789")
        await settle(pilot)
        assert app.screen.query_one(SearchField).value == "the quick brown fox 0123456789"


async def test_a_paste_right_after_the_key_of_a_dialog_is_the_dialogs(
    kit: type[Kit], console: MakeConsole
) -> None:
    state = replace(kit.state, capabilities=ABLE)
    engine = TunedEngine(kit.run(3, state), TunedClient(tuning()))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "T", Paste("2\nand more"), "enter")
        await settle(pilot)
    (asked,) = engine.asked
    assert (asked.k, asked.judge) == (2, True)


async def test_a_paste_waits_for_the_keys_before_it(kit: type[Kit], console: MakeConsole) -> None:
    state = replace(kit.state, capabilities=ABLE)
    app = console(TunedEngine(kit.run(3, state), TunedClient(tuning())))
    async with run(app) as pilot:
        await press(pilot, "T")
        type_at_once(app, "k", "=", Paste("2"), "0", Paste("1"))
        await settle(pilot)
        assert app.screen.query_one("#what", Input).value == "k=201"


async def test_a_paste_of_a_dialog_that_is_refused_is_dropped_with_what_follows(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))  # it knows no trials
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "T", "k", "=", Paste("2"), "3", gap_s=0.4)
        await settle(pilot)
    assert engine.asked == []


async def test_a_paste_is_for_the_line_where_a_list_has_the_focus(
    kit: type[Kit], console: MakeConsole
) -> None:
    chosen: list[Side | None] = []
    app = console(kit.engine(kit.run(3)))
    async with run(app) as pilot:
        for waits in (False, True):
            against = AgainstScreen()
            against.sides = (Side("pin", "the pin"),)
            app.push_screen(against, chosen.append)
            if waits:
                await settle(pilot)
                assert isinstance(app.focused, OptionList)
            type_at_once(app, Paste("127.0.0.1:9"), "enter")
            await settle(pilot)
    assert [one and one.value for one in chosen] == ["127.0.0.1:9"] * 2


def click(x: int, y: int) -> tuple[MouseDown, MouseUp]:
    """With the left button, at a place on the screen."""

    def make(kind: type[MouseDown] | type[MouseUp]) -> Any:
        return kind(
            None, x, y, 0, 0, button=1, shift=False, meta=False, ctrl=False, screen_x=x, screen_y=y
        )

    return make(MouseDown), make(MouseUp)


async def test_a_key_waits_for_the_click_before_it(kit: type[Kit], console: MakeConsole) -> None:
    state = replace(kit.state, capabilities=ABLE)
    app = console(TunedEngine(kit.run(3, state), TunedClient(tuning())))
    async with run(app) as pilot:
        await press(pilot, "p")
        place = app.screen.query_one(OptionList).region.offset
        type_at_once(app, *click(place.x + 3, place.y), *"0.2")
        await settle(pilot)
        assert isinstance(app.screen, ValueDialog)
        assert app.screen.query_one(Input).value == "0.2"


async def test_a_key_whose_widget_goes_holds_nothing_up() -> None:
    posted: list[KeyFollower] = []

    class App(MessagePump):
        def post_message(self, message: object) -> bool:
            assert isinstance(message, KeyFollower)
            posted.append(message)
            return True

    class Gone(MessagePump):
        def post_message(self, message: object) -> bool:
            return False

    app = App()
    order = KeyOrder(app, Gone)
    order.begin(Key("q", "q"), Gone())
    assert not order.take(posted.pop())  # a second one follows what the action has sent
    assert order.take(posted.pop())
