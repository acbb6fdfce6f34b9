"""Text of engines, models and files on the console's screens moves no cursor."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.segment import ControlType, Segment
from tests.support.command import Command
from tests.support.escapes import ESCAPES, PLANTED, assert_harmless
from tests.support.listed_engine import ListedEngine
from tests.support.pilot import press, settle
from tests.support.readings import STATE, reading
from tests.support.terminal import Terminal
from tests.support.tuned_engine import TunedClient, TunedEngine, tuning
from textual.color import Color

from specdeck.console.screens.dialogs import Choice, Dialog
from specdeck.console.screens.tuning.dialogs import ValueDialog
from specdeck.console.widgets.text import ForeignText
from specdeck.engine.errors import Unreachable
from specdeck.engine.metrics.recording import reading_as_json
from specdeck.engine.protocol.messages import Capability, LastChange
from specdeck.engine.protocol.tuning import Parameter

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from specdeck.console.app import Console

MakeConsole = Callable[..., "Console"]
BLACK = Color(0, 0, 0)


@pytest.mark.parametrize("text", [*ESCAPES, PLANTED], ids=ascii)
def test_a_line_stays_as_wide_as_it_is(text: str) -> None:
    line = Segment(f"k 3 {text} é界")
    (shown,) = ForeignText().apply([line], BLACK)
    assert shown.text.isprintable()
    assert shown.cell_length == line.cell_length


def test_our_own_lines_are_left_alone() -> None:
    bell = Segment("\x07", None, [(ControlType.BELL,)])
    line = [Segment("k 3 → 5 · é界"), Segment(""), bell]
    assert ForeignText().apply(line, BLACK) is line
    assert ForeignText().apply([*line, Segment("\x1b")], BLACK)[:3] == line


def assert_screen_harmless(pilot: Pilot[str]) -> str:
    """What is on the screen; nothing of it is obeyed."""
    drawn = pilot.app.export_screenshot()
    assert_harmless(drawn)
    return drawn


def test_no_byte_of_a_recording_steers_the_terminal(tmp_path: Path) -> None:
    line = {
        **reading_as_json(reading(1)), "engine": f"http://e/{PLANTED}", "model": PLANTED,
        "method": PLANTED, "fingerprint": PLANTED, "system_fingerprint": PLANTED,
    }  # fmt: skip
    file = tmp_path / "recording.jsonl"
    file.write_text("".join(json.dumps({**line, "t": 1.0 + n / 100}) + "\n" for n in range(9)))
    command = Command(tmp_path / "home")
    terminal = Terminal(command.line("replay", str(file)), command.environment)
    try:
        terminal.until(lambda text: "owned" in text)
        terminal.press("f")
        terminal.until(lambda text: "recording" in text)
        terminal.press("q")
        assert terminal.wait() == 0
    finally:
        terminal.close()
    for steering in ("\x1b]52", "\x1b]0;", "\x9b", "\x9d", "\x1b[2J\x1b[H\u202e", "\u202e"):
        assert steering.encode() not in terminal.raw, ascii(steering)


async def test_widgets_of_textual_show_foreign_text(console: MakeConsole) -> None:
    engine = ListedEngine([reading(0)])
    parameter = Parameter(PLANTED, 1.0, 1.0, "number", doc=PLANTED)
    async with console(engine).run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        pilot.app.notify(PLANTED, title=PLANTED, markup=False)
        await pilot.app.push_screen(ValueDialog(parameter))
        await settle(pilot)
        assert "owned" in assert_screen_harmless(pilot)
        choices = (Choice("", "escape", PLANTED.replace("[", "(")),)
        await pilot.app.push_screen(Dialog(PLANTED, PLANTED, choices, ()))
        await settle(pilot)
        assert "owned" in assert_screen_harmless(pilot)


async def test_every_screen_shows_what_an_engine_says(console: MakeConsole) -> None:
    planted: Any = PLANTED
    change = LastChange(1.0, PLANTED, PLANTED, {"k": PLANTED}, {PLANTED: 3}, planted)
    state = replace(
        STATE, plugin=PLANTED, vllm=PLANTED, model=PLANTED, method=PLANTED, runner=PLANTED,
        fingerprint=PLANTED, system_fingerprint=PLANTED, policy_reason=PLANTED, alarm=PLANTED,
        capabilities=(Capability("live_k", False, PLANTED, PLANTED),), last_change=change,
    )  # fmt: skip
    told = tuning()
    breaker = replace(told.breaker, reason=PLANTED, alarm=PLANTED, evidence=PLANTED)
    parameters = tuple(replace(one, name=f"goodput.{PLANTED}") for one in told.parameters)
    told = replace(told, reason=PLANTED, breaker=breaker, parameters=parameters)
    client = TunedClient(told)
    client.states = [state]
    away = Unreachable(PLANTED, remedy=PLANTED)
    engine = TunedEngine([reading(0, state), reading(1, state)], client)
    engine.name = PLANTED
    other = ListedEngine([reading(0, error=away, sample=None, state=None)], name=PLANTED)
    async with console(engine, other).run_test(size=(120, 40)) as pilot:
        for key in ("", "p", "e", "escape", "escape", "d", "escape", "f", "escape", "?"):
            if key:
                await press(pilot, key)
            assert_screen_harmless(pilot)
