"""What is copied, and that it does what it says."""

from __future__ import annotations

import base64
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.listed_history import ListedEvent, ListedHistory
from tests.support.pilot import press, run
from tests.support.screen_text import screen_text
from textual.widgets import OptionList

from specdeck.console.screens.copy import CopyDialog
from specdeck.console.state.copies import (
    copy_case,
    list_check_copies,
    list_commands,
    list_figures,
)
from specdeck.console.state.engine_state import Track, fold_reading
from specdeck.console.state.recorded import RecordedBox
from specdeck.console.terminal.cell_diff import CellDiff
from specdeck.engine.client.command_options import list_options
from specdeck.engine.divergence.prompts import parse_prompt
from specdeck.engine.operations.assignments import format_set, parse_assignments
from specdeck.engine.operations.check import CheckOptions
from specdeck.engine.operations.check_command import format_check
from specdeck.engine.protocol.messages import Change

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.app import App
    from textual.pilot import Pilot

    from specdeck.console.state.check import SplitCheck

URL = "http://gpu-1:8000"


@pytest.mark.parametrize(
    "change",
    [
        Change(k=0),
        Change(k=3, mode="speculate", fallback="cold"),
        Change(mode="target-only"),
        Change(policy="goodput", parameters={"goodput.margin": 0.02, "breaker.windows": 4}),
        Change(breaker="closed"),
        Change(breaker="open", probe=True),
        Change(parameters={"goodput.max_draft_length": "none", "breaker.automatic": True}),
    ],
)
def test_a_change_as_a_command_asks_for_the_same(change: Change) -> None:
    words = shlex.split(format_set(URL, change))
    assert words[:3] == ["specdeck", "set", URL]
    assert parse_assignments(words[3:]) == change


def test_a_reason_of_others_stays_one_word_of_the_shell() -> None:
    reason = "x; rm -rf ~ $(id) 'quoted'"
    words = shlex.split(format_set(URL, Change(k=3, trial_s=40.0, reason=reason)))
    assert words[3:] == ["k=3", "--trial", "40", "--reason", reason]


def test_a_check_as_a_command_has_every_option_that_differs() -> None:
    from specdeck.console.cli.check import command
    from specdeck.console.cli.check_arguments import CheckArguments

    asked = CheckOptions(
        reference="http://gpu-2:8000", prompts=50, max_tokens=64, threshold=0.02, streams=2,
        private=True, model="big", calls=7,
    )  # fmt: skip
    words = shlex.split(format_check(URL, asked, "chat"))
    context = command.make_context("check", words[2:])
    found = CheckArguments(**context.params)
    assert found.engine == URL
    assert (found.source, found.prompt_limit) == ("chat", 50)
    assert found.reference == asked.reference
    for name in ("max_tokens", "threshold", "streams", "private", "model", "calls"):
        assert getattr(found.options(), name) == getattr(asked, name), name


def test_every_action_on_an_engine_is_a_command(kit: type[Kit]) -> None:
    track = Track("demo", URL)
    for reading in kit.run(3):
        track = fold_reading(track, reading)
    told = {one.label: one.text for one in list_commands(track, trial=Change(k=4, trial_s=40.0))}
    assert told["k less"] == f"specdeck set {URL} k=4"
    assert told["target-only"] == f"specdeck set {URL} mode=target-only"
    assert told["auto"] == f"specdeck set {URL} policy=goodput"
    assert told["breaker"].startswith(f"specdeck set {URL} breaker=open")
    assert told["trial"] == f"specdeck set {URL} k=4 --trial 40"
    assert told["sweep"] == f"specdeck sweep {URL}"
    assert "k more" not in told  # k_max is in force
    figures = {one.label: one.text for one in list_figures(track)}
    assert figures["engine"] == URL
    assert float(figures["acceptance"]) > 0


def test_each_command_has_what_the_engine_must_be_given(kit: type[Kit]) -> None:
    track = Track("demo", URL)
    for reading in kit.run(3):
        track = fold_reading(track, reading)
    options = list_options("NIGHT_KEY", Path("/tokens/a b"), has_token=False)
    told = [*list_commands(track, trial=Change(k=4, trial_s=40.0), options=options)]
    assert len(told) > 6
    for one in told:
        words = shlex.split(one.text)
        assert words[words.index("--api-key-env") + 1] == "NIGHT_KEY", one.text
        changes = words[1] in ("set", "sweep", "attach")
        assert ("--admin-token-file" in words) == changes, one.text
        if changes:
            assert words[words.index("--admin-token-file") + 1] == "/tokens/a b"


def test_nothing_of_an_engine_is_sent_off_or_obeyed_where_it_is_pasted(kit: type[Kit]) -> None:
    planted = "demo\nid\r\x1b[201~\x9b31m\u202e"
    able = replace(kit.state, model=planted, fingerprint=planted, system_fingerprint=planted,
                   instance=planted)  # fmt: skip
    track = fold_reading(Track("demo", URL), replace(kit.run(3)[-1], state=able))
    trial = Change(k=4, trial_s=40.0, reason=planted)
    told = [*list_figures(track), *list_commands(track, trial=trial)]
    assert {"path", "model", "instance", "trial"} <= {one.label for one in told}
    for one in told:
        assert one.text.isprintable(), one


async def test_nothing_of_a_recording_is_sent_off_where_it_is_pasted(
    kit: type[Kit], console: MakeConsole
) -> None:
    """Its address, its name and its events are whatever its file says."""
    planted = "http://x/\nid\r\x1b[201~\x9b31m\u202e"
    readings = [replace(one, url=planted) for one in kit.run(3)]
    told = [ListedEvent(readings[-1].t, planted, who=planted, reason=planted)]
    box = RecordedBox(ListedHistory(readings, told), name=planted, url=planted)
    app = console(box)
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "C")
        assert isinstance(app.screen, CopyDialog)
        labels = {one.label for one in app.screen.copies}
        assert {"engine", "latest event"} <= labels
        for one in app.screen.copies:
            assert one.text.isprintable(), one


def test_a_prompt_is_copied_with_what_a_terminal_would_obey_spelt_out() -> None:
    prompt = parse_prompt('{"prompt": "é\\n\u2028\x9b31m\u202e"}')
    (text,) = (
        one.text
        for one in list_check_copies(_idle_check(), URL, prompt, keyed=False)
        if one.label == "prompt"
    )
    assert text.isprintable()
    assert "é" in text
    assert json.loads(text) == prompt.body


def _idle_check() -> SplitCheck:
    from types import SimpleNamespace

    session = SimpleNamespace(options=CheckOptions(), source="chat")
    return cast(
        "SplitCheck",
        SimpleNamespace(session=session, reference=None, split=SimpleNamespace(arms=None)),
    )


def test_an_engines_address_is_one_word_for_a_shell(kit: type[Kit]) -> None:
    url = "http://127.0.0.1:8000/;id$(id)`id`"
    track = fold_reading(Track("demo", url), replace(kit.run(3)[-1], url=url))
    for one in list_commands(track, trial=Change(k=4, trial_s=40.0)):
        assert url in shlex.split(one.text), one


def test_a_key_that_a_model_chose_sends_nothing_off_where_its_case_is_pasted() -> None:
    moved = {"path": "a\nid\n\x1b[201~", "kind": "value", "reference": 1, "serving": 2}
    case = {"prompt": 1, "index": 2, "streamed_by": "serving", "structure": [moved]}
    assert copy_case(case).text.isprintable()


def copied(app: App[Any]) -> str:
    return app.clipboard


async def choose(pilot: Pilot[str], label: str) -> None:
    """Copies what the dialog calls so."""
    screen = pilot.app.screen
    assert isinstance(screen, CopyDialog)
    at = next(n for n, one in enumerate(screen.copies) if one.label == label)
    screen.query_one(OptionList).highlighted = at
    await press(pilot, "enter")


async def test_the_live_screen_copies_a_name_and_a_command(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "C")
        assert "specdeck set" in screen_text(app)
        await choose(pilot, "path")
        assert copied(app) == kit.state.fingerprint
        await press(pilot, "C")
        await choose(pilot, "k less")
        assert copied(app) == f"specdeck set {app.controller.engine.url} k=4"
        await press(pilot, "C", "escape")
        assert not isinstance(app.screen, CopyDialog)


async def test_the_selected_event_is_the_first_thing_to_copy(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24)) as pilot:
        for number in range(3):
            app.controller.tell(f"event {number}")
        await press(pilot, "e", "down", "C", "enter")
        assert copied(app).endswith("  event 1")


def test_what_the_clipboard_gets_passes_the_driver_whole() -> None:
    diff = CellDiff(80, 24)
    text = base64.b64encode(("specdeck set http://x k=3\n" * 50).encode()).decode()
    assert diff.feed(f"\x1b]52;c;{text}\a") == f"\x1b]52;c;{text}\a"
    assert diff.feed("\x1b[1;1Hk") != ""


def test_a_dialog_that_goes_before_it_has_widgets_lists_nothing() -> None:
    dialog = CopyDialog([])
    dialog.list_options()
    dialog.on_mount()
