"""Of keys that come in one write, none behind the key of a dialog is the screen's below; and no
dialog is answered by the key that opened it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.console.conftest import Kit, MakeConsole
from tests.support.facts_engine import FactsEngine
from tests.support.listed_engine import ListedEngine
from tests.support.listed_history import ListedHistory
from tests.support.pilot import press, run, settle, type_at_once
from tests.support.tuned_engine import ABLE, TunedClient, TunedEngine, tuning
from textual.widgets import Input

import specdeck.console
from specdeck.console import keys
from specdeck.console.palette import PaletteScreen
from specdeck.console.screens.copy import CopyDialog
from specdeck.console.screens.dialogs import Dialog, HelpScreen, LineDialog, Modal
from specdeck.console.screens.divergence.dialogs import CheckForm, PromptPicker
from specdeck.console.screens.events.screen import EventsScreen
from specdeck.console.screens.fingerprint.dialogs import AgainstScreen
from specdeck.console.screens.timeline.dialogs import EventDialog, MomentDialog
from specdeck.console.screens.tuning.dialogs import ParametersScreen, TrialDialog, ValueDialog
from specdeck.console.settings import Settings
from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.operations.fingerprint import Fingerprints
from specdeck.engine.operations.watches import Watches

if TYPE_CHECKING:
    from textual.app import App
    from textual.await_complete import AwaitComplete

FACTS: dict[str, Any] = {"engine": {"vllm": "0.32.0"}, "config": {"model": {"dtype": "float32"}}}
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


@dataclass(frozen=True)
class Scene:
    """A dialog, and how it is opened."""

    dialog: type[Modal[Any]]
    key: str
    way: tuple[str, ...] = ()
    """What is pressed before."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    armed: bool = True


MOVED = {"control.arm": "a", "fingerprint.pin": "o", "console.quit": "s"}
"""Keys that are an answer's in the dialogs that they open."""
SCENES = (
    Scene(Dialog, "c", armed=False),
    Scene(Dialog, "a", settings={"keymap": MOVED}, armed=False),
    Scene(Dialog, "q", settings={"owned": True}),
    Scene(Dialog, "s", settings={"keymap": MOVED, "owned": True}),
    Scene(Dialog, "ctrl+q", settings={"owned": True}),
    Scene(Dialog, "p", ("f",)),
    Scene(Dialog, "o", ("f",), {"keymap": MOVED}),
    Scene(HelpScreen, "question_mark"),
    Scene(HelpScreen, "f1"),
    Scene(TrialDialog, "T"),
    Scene(TrialDialog, "enter", ("ctrl+p", *"measures")),
    Scene(ParametersScreen, "p"),
    Scene(ParametersScreen, "enter", ("u",)),
    Scene(ValueDialog, "enter", ("p",)),
    Scene(MomentDialog, "g"),
    Scene(EventDialog, "enter", ("left_curly_bracket",)),
    Scene(EventsScreen, "e"),
    Scene(EventsScreen, "enter", ("ctrl+p", *"everything")),
    Scene(CopyDialog, "C"),
    Scene(CopyDialog, "enter", ("ctrl+p", *"copy")),
    Scene(PaletteScreen, "ctrl+p"),
    Scene(PaletteScreen, "colon"),
    Scene(AgainstScreen, "a", ("f",)),
    Scene(AgainstScreen, "enter", ("f", "ctrl+p", *"compare")),
    Scene(PromptPicker, "p", ("d",)),
    Scene(PromptPicker, "enter", ("d", "ctrl+p", *"type")),
    Scene(CheckForm, "e", ("d",)),
    Scene(CheckForm, "enter", ("d", "ctrl+p", *"replays")),
)


def test_every_dialog_has_a_scene() -> None:
    kinds: list[type[Any]] = [Modal]
    found: set[type[Any]] = set()
    while kinds:
        below = kinds.pop().__subclasses__()
        kinds += below
        found |= {one for one in below if one.__module__.startswith("specdeck.")}
    assert found - {LineDialog} == {one.dialog for one in SCENES}


@pytest.mark.parametrize("scene", SCENES, ids=lambda one: f"{one.dialog.__name__}-{one.key}")
async def test_no_dialog_is_answered_by_the_key_that_opened_it(
    scene: Scene, kit: type[Kit], console: MakeConsole, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    answers: list[object] = []
    dismiss = Modal.dismiss

    def note(screen: Modal[Any], result: Any = None) -> AwaitComplete:
        answers.append(result)
        return dismiss(screen, result)

    state = replace(kit.state, capabilities=ABLE)
    client = TunedClient(tuning())
    client.states = [state]
    engine = TunedEngine(kit.run(5, state), client, armed=scene.armed)
    served = FactsEngine(FACTS, state)

    def open_engine(url: str) -> EngineClient:
        return open_client(url, transport=httpx.MockTransport(served))

    fingerprints = Fingerprints(open_engine, pins=tmp_path, store=tmp_path / "store.sqlite")
    pinned = (await fingerprints.pin(await fingerprints.fetch(engine.url))).place
    before = pinned.stat().st_mtime_ns
    given = dict(scene.settings)
    settings = Settings(interval=1.0, theme="dark", keymap=given.pop("keymap", {}))
    app = console(
        engine, settings=settings, watches=lambda: Watches(fingerprints),
        histories=lambda index: ListedHistory(kit.run(5, state), ()), **given,
    )  # fmt: skip
    async with run(app) as pilot:
        app.controller.tell("something happened")
        for key in scene.way:
            await press(pilot, key)
        with monkeypatch.context() as patch:
            patch.setattr(Modal, "dismiss", note)
            began = type(app.screen)
            type_at_once(app, *[scene.key] * 6, gap_s=0.3)
            await settle(pilot)
        assert began is not scene.dialog
        assert isinstance(app.screen, scene.dialog)
        assert app.is_running
        answered = [one for one in answers if one]
    assert (answered, engine.asked, engine.armed) == ([], [], scene.armed)
    assert pinned.stat().st_mtime_ns == before


async def test_the_key_that_answers_a_dialog_does_nothing_below_it(
    kit: type[Kit], console: MakeConsole
) -> None:
    state = replace(kit.state, capabilities=ABLE)
    client = TunedClient(tuning())
    client.states = [state]
    engine = TunedEngine(kit.run(5, state), client, armed=False)
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "c", *"aaa", gap_s=0.4)
        await settle(pilot)
        assert engine.armed
        assert engine.asked == []
        await press(pilot, "a")
    assert [one.policy for one in engine.asked] == ["goodput"]


def test_no_screen_is_opened_from_a_worker_that_waits_for_it() -> None:
    """By then keys that were typed meanwhile have been the screen's below."""
    folder = Path(specdeck.console.__file__).parent
    found = [
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"push_screen_wait|wait_for_dismiss", path.read_text(encoding="utf-8"))
    ]
    assert found == []
