"""Dialogs that are answered faster than they go."""

from __future__ import annotations

from tests.console.conftest import Kit, MakeConsole
from tests.support.pilot import run, settle

from specdeck.console.screens.dialogs import Choice, Dialog
from specdeck.console.screens.live.screen import LiveScreen


async def test_a_second_answer_closes_nothing_more(kit: type[Kit], console: MakeConsole) -> None:
    answers: list[str | None] = []
    app = console(kit.engine(kit.run(3)))
    async with run(app) as pilot:
        choices = (Choice("yes", "y", "Yes"), Choice("", "escape", "No"))
        app.push_screen(Dialog("Sure?", "It takes a while.", choices, ()), answers.append)
        await settle(pilot)
        dialog = app.screen
        assert isinstance(dialog, Dialog)
        dialog.dismiss("yes")
        dialog.dismiss("")  # a key that was typed twice
        await settle(pilot)
        assert isinstance(app.screen, LiveScreen)
    assert answers == ["yes"]
