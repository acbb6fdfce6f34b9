"""Keys that come in one write do the same as keys that are waited for."""

from __future__ import annotations

from tests.console.conftest import Kit, MakeConsole
from tests.support.pilot import run, settle, type_at_once
from textual.message_pump import MessagePump

from specdeck.console.key_order import KeyFollower, KeyOrder
from specdeck.console.screens.fingerprint.screen import FingerprintScreen
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
    order.begin(Gone())
    assert not order.take(posted.pop())  # a second one follows what the action has sent
    assert order.take(posted.pop())
