"""The field of a search: who has the keys, and what a list is told."""

from __future__ import annotations

from textual import on
from textual.app import App, ComposeResult
from textual.widgets import OptionList

from specdeck.console.widgets.search import SearchField


class Listing(App[None]):
    """A list and its search."""

    AUTO_FOCUS = "OptionList"

    def __init__(self) -> None:
        super().__init__()
        self.searched: list[str] = []

    def compose(self) -> ComposeResult:
        yield OptionList("one", "two")
        yield SearchField(placeholder="words", id="search", list_type=OptionList)

    @on(SearchField.Searched)
    def find(self, event: SearchField.Searched) -> None:
        self.searched.append(event.wanted)


async def test_each_letter_is_told_and_enter_gives_the_keys_back() -> None:
    app = Listing()
    async with app.run_test() as pilot:
        field = app.query_one(SearchField)
        field.begin()
        await pilot.press(*"tw")
        assert app.searched == ["t", "tw"]
        await pilot.press("enter")
        assert isinstance(app.focused, OptionList)
        assert field.value == "tw"
        assert field.has_class("-open")
        assert set(app.searched[2:]) <= {"tw"}


async def test_the_end_of_a_search_shows_everything_and_is_told_once_only() -> None:
    app = Listing()
    async with app.run_test() as pilot:
        field = app.query_one(SearchField)
        assert not field.end()
        field.begin()
        await pilot.press("t")
        assert field.end()
        await pilot.pause()
        assert app.searched[-1] == ""
        assert isinstance(app.focused, OptionList)
        assert not field.has_class("-open")
        assert not field.end()


async def test_a_field_that_was_only_opened_is_closed_first() -> None:
    app = Listing()
    async with app.run_test() as pilot:
        field = app.query_one(SearchField)
        field.begin()
        await pilot.pause()
        assert field.end()
        assert not field.end()
