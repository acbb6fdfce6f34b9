"""Dialogs that are answered faster than they go, or shown where there is little room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.console.conftest import Kit, MakeConsole
from tests.support.pilot import run, settle
from textual.widgets import Input, OptionList

from specdeck.console.screens.copy import CopyDialog
from specdeck.console.screens.dialogs import Choice, Dialog, Modal
from specdeck.console.screens.divergence.dialogs import CheckForm, PromptPicker
from specdeck.console.screens.fingerprint.dialogs import AgainstScreen, Side
from specdeck.console.screens.live.screen import LiveScreen
from specdeck.console.screens.timeline.dialogs import MomentDialog
from specdeck.console.screens.tuning.dialogs import TrialDialog, ValueDialog
from specdeck.console.state.copies import Copyable
from specdeck.console.state.engine_state import Track
from specdeck.engine.operations.check import CheckOptions
from specdeck.engine.protocol.tuning import Parameter

LONG = "What it means takes many words, and whoever is to answer has to have read them. " * 12
CHOICES = (Choice("yes", "y", "Yes"), Choice("", "escape", "No"))


def ask_with_list() -> AgainstScreen:
    against = AgainstScreen()
    against.sides = tuple(Side("moment", f"@{number}", str(number)) for number in range(40))
    return against


ASKED: dict[str, Callable[[], Modal[Any]]] = {
    "question": lambda: Dialog("Sure?", LONG, CHOICES, ()),
    "value": lambda: ValueDialog(Parameter("a.b", 0.5, 0.5, "number", 0.0, 1.0, doc=LONG)),
    "trial": lambda: TrialDialog(Track("a", "http://a")),
    "moment": lambda: MomentDialog("recorded from 03:10 to 04:10", float),
    "copy": lambda: CopyDialog([Copyable("line", LONG)] * 40),
    "against": ask_with_list,
    "prompt": lambda: PromptPicker("chat", "ctrl+o"),
    "form": lambda: CheckForm(CheckOptions()),
}


@pytest.mark.parametrize("size", [(80, 24), (60, 15), (40, 10)], ids=str)
@pytest.mark.parametrize("name", ASKED)
async def test_what_an_answer_is_given_with_is_in_view(
    name: str, size: tuple[int, int], kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=size) as pilot:
        dialog = ASKED[name]()
        app.push_screen(dialog)
        await settle(pilot)
        assert isinstance(app.focused, Input | OptionList)
        # A form of many lines scrolls to the one that is typed on.
        lines = () if isinstance(dialog, CheckForm) else tuple(dialog.query(Input))
        seen = dialog._compositor.visible_widgets
        for field in [app.focused, *lines, *dialog.query(OptionList)]:
            region, clip = seen[field]
            assert region.intersection(clip) == region


async def test_a_second_answer_closes_nothing_more(kit: type[Kit], console: MakeConsole) -> None:
    answers: list[str | None] = []
    app = console(kit.engine(kit.run(3)))
    async with run(app) as pilot:
        app.push_screen(Dialog("Sure?", "It takes a while.", CHOICES, ()), answers.append)
        await settle(pilot)
        dialog = app.screen
        assert isinstance(dialog, Dialog)
        dialog.dismiss("yes")
        dialog.dismiss("")  # a key that was typed twice
        await settle(pilot)
        assert isinstance(app.screen, LiveScreen)
    assert answers == ["yes"]
