"""Lists whose keys come before they are drawn."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.widgets.option_list import Option

from specdeck.console.widgets.options import LineList


class Listing(App[None]):
    def compose(self) -> ComposeResult:
        yield LineList(markup=False)


@pytest.mark.parametrize("key", ["page_up", "page_down"])
async def test_a_page_of_a_list_that_is_not_drawn_yet_is_none(key: str) -> None:
    app = Listing()
    async with app.run_test() as pilot:
        listing = app.query_one(LineList)
        listing.add_options([Option("one"), Option("two")])
        listing.highlighted = 1
        await listing.run_action(key)
        assert listing.highlighted == 1
        await pilot.pause()
        await listing.run_action("page_up")
        assert listing.highlighted == 0
