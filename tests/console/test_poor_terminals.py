"""Consoles on terminals without lines, without colours, and on lines that carry little."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from rich.console import COLOR_SYSTEMS
from rich.style import Style
from tests.support.pilot import press, run, settle
from tests.support.screen_text import screen_text

from specdeck.console.cli.common import read_settings, terminal_options
from specdeck.console.settings import Settings
from specdeck.console.terminal.cell_diff import CellDiff

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.app import App


def find_attributes(app: App[Any]) -> set[str]:
    """The SGR parameters of the screen. Rich's styles keep those of the first terminal of a
    process, so that they are made anew."""
    colours = COLOR_SYSTEMS[app.console.color_system or "standard"]
    strips: Any = app.screen._compositor.render_strips()
    styles = (one.style for strip in strips for one in strip if one.style is not None)
    drawn = [
        Style(color=one.color, bgcolor=one.bgcolor, bold=one.bold).render("x", color_system=colours)
        for one in styles
    ]
    return {sgr for text in drawn for sgr in re.findall(r"\x1b\[([0-9;]+)m", text)} - {"0"}


KEYS = ("question_mark", "escape", "e", "escape", "u", "p", "escape", "f", "d", "p", "escape")


def painted(app: App[Any]) -> str:
    """A whole frame as the terminal gets it."""
    update: Any = app.screen._compositor.render_update(full=True)  # what is written
    return str(update.render_segments(app.console))


async def test_ascii_draws_nothing_else(kit: type[Kit], console: MakeConsole) -> None:
    app = console(kit.engine(kit.run(40)), settings=Settings(theme="dark", ascii=True), owned=True)
    async with run(app, size=(120, 40)) as pilot:
        app.controller.tell("k 5 → 3 · “best” ≥ 62 % 世")
        for key in ("", *KEYS):
            if key:
                await press(pilot, key)
            text = screen_text(app)
            assert text.isascii(), [line for line in text.splitlines() if not line.isascii()]
            assert painted(app).isascii()


COLOUR = re.compile(r"\x1b\[[0-9;]*(?<![0-9])(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?![0-9])[0-9;]*m")


async def test_no_color_draws_without_any_and_shows_the_cursor_still(
    kit: type[Kit], console: MakeConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    app = console(kit.engine(kit.run(40)))
    async with run(app, size=(100, 30)) as pilot:
        for number in range(3):
            app.controller.tell(f"event {number}")
        assert not COLOUR.search(painted(app))
        await press(pilot, "e")
        drawn = painted(app)
        assert not COLOUR.search(drawn)
        line = next(line for line in drawn.split("\n") if "event 2" in line)
        other = next(line for line in drawn.split("\n") if "event 1" in line)
        reverse = re.compile(r"\x1b\[(?:[0-9;]*;)?7(?:;[0-9;]*)?m[^\x1b]*event")
        assert reverse.search(line)
        assert not reverse.search(other)


@pytest.mark.parametrize(
    ("term", "colorterm", "theme", "allowed"),
    [
        ("xterm", "", "terminal", r"3[0-79]|4[0-79]|9[0-7]|10[0-7]"),
        ("xterm-256color", "", "dark", r"[34]8;5;\d+"),
        ("xterm-256color", "truecolor", "dark", r"[34]8;2;\d+;\d+;\d+"),
    ],
)
async def test_a_terminal_gets_the_colours_that_it_has(
    term: str, colorterm: str, theme: str, allowed: str,
    kit: type[Kit], console: MakeConsole, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("COLORFGBG", raising=False)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLORTERM", colorterm)
    app = console(kit.engine(kit.run(40)), settings=Settings())
    async with run(app, size=(100, 30)):
        assert app.theme == theme
        told = find_attributes(app)
    one = rf"(?:[1-9]|{allowed})"
    assert len(told) > 3
    assert [sgr for sgr in told if not re.fullmatch(rf"{one}(?:;{one})*", sgr)] == []


@pytest.mark.parametrize("poor", [{}, {"ascii": True}, {"no_color": True}, {"term": "xterm"}])
async def test_a_frame_that_is_shown_already_costs_nothing(
    poor: dict[str, Any], kit: type[Kit], console: MakeConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", poor.get("term", "xterm-256color"))
    monkeypatch.setenv("COLORTERM", "")
    if poor.get("no_color"):
        monkeypatch.setenv("NO_COLOR", "1")
    app = console(
        kit.engine(kit.run(40)), settings=Settings(theme="auto", ascii=bool(poor.get("ascii")))
    )
    async with run(app, size=(80, 24)):
        diff = CellDiff(80, 24)
        first, again = diff.feed(painted(app)), diff.feed(painted(app))
    assert len(first) > 1000
    assert again == ""


async def test_a_slow_line_gets_figures_now_and_then_and_events_at_once(
    kit: type[Kit], console: MakeConsole
) -> None:
    now = 100.0
    engine = kit.engine(kit.run(3))
    app = console(engine, settings=Settings(theme="dark", slow=True), steady=lambda: now)
    shown = 0
    async with run(app) as pilot:
        screen = app.screen
        show = screen.show  # type: ignore[attr-defined]  # the live screen

        def count() -> None:
            nonlocal shown
            shown += 1
            show()

        screen.show = count  # type: ignore[attr-defined]
        for number in range(3, 8):
            engine.more.put_nowait(kit.reading(number))
            await settle(pilot)
        before = shown
        assert before <= 1
        now += 6.0
        engine.more.put_nowait(kit.reading(8))
        await settle(pilot)
        assert shown == before + 1
        app.controller.tell("something happened")
        await settle(pilot)
        assert shown == before + 2


def test_options_switch_on_what_the_settings_leave_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    found: list[Settings] = []

    @click.command
    @terminal_options
    def command() -> None:
        found.append(read_settings())

    for options in ([], ["--ascii"], ["--slow", "--ascii"]):
        command.main(options, standalone_mode=False)
    assert [(one.ascii, one.slow) for one in found] == [(False, False), (True, False), (True, True)]
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.yaml").write_text("slow: true\nengine_themes: {p*: light}\n")
    command.main([], standalone_mode=False)
    assert (found[-1].slow, found[-1].engine_themes) == (True, {"p*": "light"})
