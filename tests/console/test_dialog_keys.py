"""Of keys that come in one write, none behind the key of a dialog is the screen's below."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.console.conftest import Kit, MakeConsole
from tests.support.listed_engine import ListedEngine
from tests.support.pilot import press, run, settle, type_at_once
from tests.support.tuned_engine import ABLE, TunedClient, TunedEngine, tuning
from textual.widgets import Input

import specdeck.console
from specdeck.console import keys
from specdeck.console.screens.dialogs import Modal

if TYPE_CHECKING:
    from textual.app import App

WAYS = {
    "live": (),
    "tuning": ("u",),
    "requests": ("r",),
    "check": ("d",),
    "fingerprint": ("f",),
    "parameters": ("p",),
    "events": ("e",),
}
"""How a place is come to."""
PASSED_OVER = {"console.quit", "sweep.toggle", "view.redraw", "view.save", "incident.write"}
"""Keys that open no dialog and leave traces."""


def takes_keys(app: App[str]) -> bool:
    """Whether a digit is not the screen's that steers: it is typed or it answers something."""
    return isinstance(app.screen, Modal) or isinstance(app.focused, Input)


@pytest.mark.parametrize("place", WAYS)
async def test_no_key_behind_that_of_a_dialog_steers(
    kit: type[Kit], console: MakeConsole, place: keys.Place
) -> None:
    state = replace(kit.state, capabilities=ABLE)

    def make() -> ListedEngine:
        if place not in ("live", "tuning", "parameters"):
            return kit.engine(kit.run(5, state))
        client = TunedClient(tuning())
        client.states = [state]
        return TunedEngine(kit.run(5, state), client)

    names = [one for one in keys.of(place) if one.id not in PASSED_OVER]
    if place != "live":  # what several screens have in common is tried there
        common = set(keys.GROUPS["live"])
        names = [one for one in names if one.group not in common or one.id == "view.copy"]
    names = [one for one in names if not one.action.startswith("app.open_screen")]
    opened = []
    for key in [one.keys[0] for one in names]:
        app = console(make())
        async with run(app) as pilot:
            await press(pilot, *WAYS[place])
            before = app.screen, app.focused
            await press(pilot, key)
            waited = type(app.screen)
            if not takes_keys(app) or before == (app.screen, app.focused):
                continue
        opened.append(key)
        engine = make()
        app = console(engine)
        async with run(app) as pilot:
            await press(pilot, *WAYS[place])
            type_at_once(app, key, "u", "2")
            await settle(pilot)
            assert type(app.screen) is waited, key
        assert engine.asked == [], key
    assert opened


def test_no_screen_is_opened_from_a_worker_that_waits_for_it() -> None:
    """By then keys that were typed meanwhile have been the screen's below."""
    folder = Path(specdeck.console.__file__).parent
    found = [
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"push_screen_wait|wait_for_dismiss", path.read_text(encoding="utf-8"))
    ]
    assert found == []
