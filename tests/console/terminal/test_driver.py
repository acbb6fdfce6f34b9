"""The console in a real pseudo-terminal: fewer bytes, the same screen, the terminal restored."""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.command import PATIENCE_S
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.readings import window
from tests.support.terminal import Terminal

from specdeck.console.cli.first_and_last import INTERRUPTED
from specdeck.console.terminal.driver import LEAST, MOST, SparingDriver

_CONSOLE = """
import asyncio, sys, time
sys.path.insert(0, {root!r})
from textual.drivers.linux_driver import LinuxDriver
from specdeck.console.app import Console
from specdeck.console.cli.common import run_console
from specdeck.console.terminal.driver import SparingDriver
from tests.support.listed_engine import ListedEngine
from tests.support.readings import readings

driver = {{"sparing": SparingDriver, "textual": LinuxDriver}}[{driver!r}]
engine = ListedEngine(readings(10), pace_s=0.03)
console = Console([engine], driver_class=driver, local=lambda t: time.gmtime(0))
sys.exit(asyncio.run(run_console(console, [engine])))
"""

StartConsole = Callable[..., Terminal]
Cell = tuple[str, str, str]


@pytest.fixture
def start() -> Iterator[StartConsole]:
    """Starts a console on ten readings in a pseudo-terminal, with the driver of that name."""
    opened: list[Terminal] = []

    def begin(driver: str, size: str = "100x30", before: str = "") -> Terminal:
        program = _CONSOLE.format(root=str(Path(__file__).parents[3]), driver=driver)
        if before:
            program = program.replace("driver = ", before + "\ndriver = ", 1)
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


_SLOW_MODES = """
import termios, time
set_modes = termios.tcsetattr

def set_slowly(*given):
    time.sleep(0.5)
    set_modes(*given)

termios.tcsetattr = set_slowly
"""


def test_nothing_is_drawn_while_the_terminal_still_echoes_keys() -> None:
    program = _SLOW_MODES + _CONSOLE.format(root=str(Path(__file__).parents[3]), driver="sparing")
    terminal = PseudoTerminal([sys.executable, "-c", program], os.environ)
    try:
        terminal.press("h")
        drawn = b""
        while b"\x1b[?1049h" not in drawn:  # what was typed before is echoed by the terminal
            found = terminal.read(PATIENCE_S)
            assert found
            drawn += found
        _, _, _, local, *_ = terminal.modes()
        assert isinstance(local, int)
        assert not local & termios.ECHO
    finally:
        terminal.close()


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


@pytest.mark.parametrize("size", ["1x1", "1x5", "2x24", "3x3", "30x1"])
def test_a_terminal_of_a_few_cells_shows_the_corner_of_a_screen(
    size: str, start: StartConsole
) -> None:
    console = start("sparing", size)
    console.drain(1.0)
    console.resize("100x30")
    console.until(_is_settled)
    console.press("?")
    console.until(lambda shown: "draft one more token" in shown.lower())
    for other in ("2x2", size, "1x1"):
        console.resize(other)
        console.drain()
    console.resize("100x30")
    console.until(lambda shown: "draft one more token" in shown.lower())
    console.press("q")
    # A chart keeps its scale: what it was on the small screen need not be what it was before.
    leave(console, console.until_still(lambda shown: _is_settled(shown) and "╭" not in shown))


@pytest.mark.parametrize(
    ("said", "taken"), [((60_000, 60_000), MOST), ((1, 1), LEAST), ((80, 24), (80, 24))]
)
def test_a_size_that_a_terminal_says_gets_its_bounds(
    said: tuple[int, int], taken: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(said[0]))
    monkeypatch.setenv("LINES", str(said[1]))
    driver = object.__new__(SparingDriver)  # one with a terminal takes over this process's signals
    assert driver._get_terminal_size() == taken


def test_a_terminal_without_bounds_is_drawn_within_some(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    before = console.memory()
    for size in ("20000x20000", "60000x10000"):
        console.set_size(size)
        console.process.send_signal(signal.SIGWINCH)
        console.drain(0.5)
    console.send(b"\x1b[48;20000;20000;9;9t")
    console.drain(0.5)
    assert console.memory() < before + 300_000_000
    console.resize("100x30")
    console.until(_is_settled)


def test_a_paste_that_does_not_end_says_how_to_leave_it(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    console.send(b"\x1b[200~hello ")
    console.until(lambda shown: "a paste has not ended" in shown)
    console.send(b"?")
    console.drain(0.3)
    console.send(b"\x1b")
    shown = console.until(lambda shown: "keys count again" in shown)
    assert "draft one more token" not in shown.lower()
    console.press("?")
    console.until(lambda shown: "draft one more token" in shown.lower())


def test_q_leaves_and_restores_the_terminal(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    console.press("q")
    assert console.wait() == 0
    assert console.is_restored()


def test_a_quit_from_outside_restores_the_terminal(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    console.process.send_signal(signal.SIGQUIT)
    assert console.wait() == INTERRUPTED
    assert console.is_restored()


def fill(console: Terminal) -> None:
    """Has more drawn than a pseudo-terminal holds, while nobody reads."""
    for number in range(40):
        console.resize("120x40" if number % 2 else "118x39")
        time.sleep(0.05)


def test_a_terminal_that_stalls_is_drawn_anew_when_it_reads_on(start: StartConsole) -> None:
    console = start("sparing")
    console.until(lambda shown: shown.startswith(" specdeck"))
    fill(console)
    console.resize("120x40")
    console.press("?")
    console.until(lambda shown: "draft one more token" in shown.lower())
    console.press("q")
    console.until(_is_settled)
    console.press("q")
    assert console.wait() == 0


def test_a_console_ends_by_a_signal_while_its_terminal_stalls(start: StartConsole) -> None:
    console = start("sparing")
    console.until(lambda shown: shown.startswith(" specdeck"))
    fill(console)
    console.process.send_signal(signal.SIGTERM)
    assert console.process.wait(timeout=PATIENCE_S) == INTERRUPTED


def test_a_console_ends_when_its_terminal_is_gone_without_a_signal(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    console.vanish()
    assert console.process.wait(timeout=PATIENCE_S) == INTERRUPTED


_SHELL = """
import fcntl, os, signal, subprocess, sys, termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
modes, times = termios.tcgetattr(0), 0
job = subprocess.Popen([sys.executable, "-c", sys.argv[1]], process_group=0)
os.tcsetpgrp(0, job.pid)
while os.WIFSTOPPED(status := os.waitpid(job.pid, os.WUNTRACED)[1]):
    os.tcsetpgrp(0, os.getpgrp())
    if os.WSTOPSIG(status) == signal.SIGSTOP and "takes modes" in sys.argv:
        termios.tcsetattr(0, termios.TCSADRAIN, modes)
    times += 1
    print("\\x1b[2J\\x1b[Hstopped:", times, flush=True)
    if sys.stdin.readline() == "fg\\n":
        os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)
os.tcsetpgrp(0, os.getpgrp())
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Shell(Terminal):
    """A console as a job of a shell, which clears the screen when the job stops."""

    def __init__(self, *, takes_modes: bool) -> None:
        """`takes_modes`: it sets its own when a job stops, as some shells do."""
        program = _CONSOLE.format(root=str(Path(__file__).parents[3]), driver="sparing")
        words = [sys.executable, "-c", _SHELL, program, "takes modes" if takes_modes else ""]
        super().__init__(words, os.environ, "100x30")

    def stop_job(self, number: signal.Signals) -> None:
        """Has a signal stop the console, and waits until the shell knows."""
        os.kill(os.tcgetpgrp(self._master), number)
        self.until(lambda shown: "stopped: 1" in shown)


@pytest.fixture
def start_shell() -> Iterator[Callable[..., Shell]]:
    """Starts a console in a shell."""
    opened: list[Shell] = []

    def begin(*, takes_modes: bool) -> Shell:
        opened.append(Shell(takes_modes=takes_modes))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def leave(console: Terminal, drawn: str) -> None:
    """Waits for the whole screen as it was, and leaves by keys."""
    console.until(lambda shown: shown == drawn)
    console.press("?")
    console.until(lambda shown: "draft one more token" in shown.lower())
    console.press("q")
    console.until(lambda shown: shown == drawn)
    console.press("q")
    assert console.wait() == 0
    assert console.is_restored()
    assert b"Traceback" not in console.raw


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_a_console_that_a_signal_stopped_is_drawn_anew_in_the_foreground(
    start_shell: Callable[..., Shell], number: signal.Signals
) -> None:
    console = start_shell(takes_modes=number == signal.SIGSTOP)
    drawn = console.until_still(_is_settled)
    console.stop_job(number)
    if number == signal.SIGTSTP:
        assert console.is_restored()
    console.press("fg\n")
    leave(console, drawn)


def test_a_stopped_console_draws_nothing_in_the_background(
    start_shell: Callable[..., Shell],
) -> None:
    console = start_shell(takes_modes=False)
    drawn = console.until_still(_is_settled)
    console.stop_job(signal.SIGTSTP)
    before = len(console.raw)
    console.press("bg\n")
    console.until(lambda shown: "stopped: 2" in shown)
    assert b"\x1b[?1049h" not in console.raw[before:]
    console.press("fg\n")
    leave(console, drawn)


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_a_console_without_a_shell_is_drawn_anew_after_a_stop(
    start: StartConsole, number: signal.Signals
) -> None:
    console = start("sparing")
    drawn = console.until_still(_is_settled)
    for _ in range(3):
        console.process.send_signal(number)
        _, status = os.waitpid(console.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        console.drain()
        if number == signal.SIGTSTP:
            assert console.is_restored()
        console.screen.reset()
        console.process.send_signal(signal.SIGCONT)
        console.until(lambda shown: shown == drawn)
    leave(console, drawn)


def test_an_empty_read_is_no_end_of_the_keys(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    with console.in_lines():
        console.send(b"\x04")
        console.drain(0.5)
    console.press("?")
    console.until(lambda shown: "draft one more token" in shown.lower())
    console.press("qq")
    assert console.wait() == 0


def test_bytes_that_no_keyboard_sends_end_nothing(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    for garbage in (b"\xe9", b"\xff\xfe\xc3", b"\x1b[9999999999~", b"\x1b[:u\xc3\xa9R"):
        console.send(garbage)
    console.press("?")
    console.until(lambda shown: "draft one more token" in shown.lower())
    console.press("q")
    console.until(_is_settled)
    console.press("q")
    assert console.wait() == 0
    assert b"Traceback" not in console.raw


_SLOW_KEYS = """
import time
from specdeck.console.screens.live.screen import LiveScreen

def turn(screen):
    time.sleep(0.05)

LiveScreen.key_x = turn
"""


def test_ctrl_c_is_not_held_up_by_keys_that_wait(start: StartConsole) -> None:
    console = start("sparing", before=_SLOW_KEYS)
    console.until(_is_settled)
    for _ in range(3):
        console.send(b"x" * 1000)
    console.send(b"\x03")
    began = time.monotonic()
    assert console.wait() == 0
    assert time.monotonic() - began < 30.0  # what was typed would need minutes


@pytest.mark.parametrize(
    "flood", [b"x" * 4096, b"\x1b[<35;9;9M\x1b[<35;40;20M" * 170], ids=["keys", "mouse"]
)
def test_a_signal_ends_a_console_before_the_keys_that_were_typed(
    flood: bytes, start: StartConsole
) -> None:
    console = start("sparing", before=_SLOW_KEYS)
    console.until(_is_settled)
    before = console.memory()
    console.flood(flood, seconds=5.0)
    assert console.memory() < before + 8_000_000
    console.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert console.wait() == INTERRUPTED
    assert time.monotonic() - began < 30.0  # what was typed would need minutes
    assert console.is_restored()


def test_keys_that_were_held_back_are_handled_when_there_is_time(start: StartConsole) -> None:
    console = start("sparing")
    console.until(_is_settled)
    console.send(b"\x1b[A\x1b[B" * 300)
    console.press("?")
    console.until(lambda shown: "draft one more token" in shown.lower())
    console.press("qq")
    assert console.wait() == 0
