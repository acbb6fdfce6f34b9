"""The console in a real pseudo-terminal: fewer bytes, the same screen, the terminal restored."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.readings import window
from tests.support.terminal import Terminal

_CONSOLE = """
import sys, time
sys.path.insert(0, {root!r})
from textual.drivers.linux_driver import LinuxDriver
from specdeck.console.app import Console
from specdeck.console.terminal.driver import SparingDriver
from tests.support.listed_engine import ListedEngine
from tests.support.readings import readings

driver = {{"sparing": SparingDriver, "textual": LinuxDriver}}[{driver!r}]
engine = ListedEngine(readings(10), pace_s=0.03)
Console([engine], driver_class=driver, local=lambda t: time.gmtime(0)).run()
"""

StartConsole = Callable[..., Terminal]
Cell = tuple[str, str, str]


@pytest.fixture
def start() -> Iterator[StartConsole]:
    """Starts a console on ten readings in a pseudo-terminal, with the driver of that name."""
    opened: list[Terminal] = []

    def begin(driver: str, size: str = "100x30") -> Terminal:
        program = _CONSOLE.format(root=str(Path(__file__).parents[3]), driver=driver)
        opened.append(Terminal([sys.executable, "-c", program], os.environ, size))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


_LAST = f" {window(9).generated:.0f} "


def _is_settled(text: str) -> bool:
    """Whether the last reading is on the screen."""
    return _LAST in text and "p95" in text


def _cells(terminal: Terminal) -> list[Cell]:
    """Characters and colours; a space has no foreground of its own."""
    screen = terminal.screen
    cells = (screen.buffer[y][x] for y in range(screen.lines) for x in range(screen.columns))
    return [(cell.data, cell.fg if cell.data.strip() else "", cell.bg) for cell in cells]


def test_both_drivers_show_the_same_screen_and_one_of_them_for_fewer_bytes(
    start: StartConsole,
) -> None:
    sparing, textual = start("sparing"), start("textual")
    sparing.until(_is_settled)
    textual.until(_is_settled)

    def are_alike(_: str) -> bool:
        textual.drain()
        return _cells(sparing) == _cells(textual)

    sparing.until(are_alike)
    assert len(sparing.raw) < len(textual.raw) / 2


def test_a_resize_paints_the_whole_screen_anew(start: StartConsole) -> None:
    console = start("sparing", "120x40")
    console.until(_is_settled)
    console.resize("80x24")
    # The terminal drops its upper lines: only a repaint brings the title back.
    text = console.until(lambda shown: shown.startswith(" specdeck") and "by position" in shown)
    assert "acceptance by position" in text
    console.resize("40x10")
    text = console.until(lambda shown: shown.startswith(" specdeck") and "ITL" in shown)
    assert "accepted length" in text
    assert "by position" not in text


def test_q_leaves_and_restores_the_terminal(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    console.press("q")
    assert console.wait() == 0
    assert console.is_restored()
