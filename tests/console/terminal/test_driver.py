"""The console in a real pseudo-terminal: fewer bytes, the same screen, the terminal restored."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

_CHILD = """
import asyncio, sys, time
sys.path.insert(0, {root!r})
from benchmarks.console_wire import Steady, reading
from textual.drivers.linux_driver import LinuxDriver
from specdeck.console.app import Console
from specdeck.console.terminal.driver import SparingDriver

class Ten(Steady):
    async def readings(self, every):
        for n in range(10):
            yield reading(n)
            await asyncio.sleep(0.03)
        await asyncio.Event().wait()

driver = {{"sparing": SparingDriver, "textual": LinuxDriver}}[{driver!r}]
Console([Ten()], driver_class=driver, local=lambda t: time.gmtime(0)).run()
"""

_NOT_FOR_PYTE = re.compile(rb"\x1b\[[<>=][0-9;]*[a-z]|\x1b\[\?[0-9;]*\$p")


class Session:
    """A console in a pseudo-terminal of its own."""

    def __init__(self, driver: str, size: tuple[int, int] = (100, 30)) -> None:
        root = str(Path(__file__).parents[2])
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            child = _CHILD.format(root=root, driver=driver)
            # An environment of its own: readline sets COLUMNS and LINES behind Python's back.
            own = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            os.execve(sys.executable, [sys.executable, "-c", child], own)
        self.resize(*size)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def until(self, done: Callable[[str], bool], seconds: float = 20.0) -> str:
        """Read until the screen's text satisfies `done` and nothing more comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.4)[0]:
                try:
                    data = os.read(self.terminal, 65536)
                except OSError:
                    break
                self.raw += data
                self.stream.feed(_NOT_FOR_PYTE.sub(b"", data))
            elif done(self.text()):
                break
        return self.text()

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def _settled(text: str) -> bool:
    return "tokens/s" in text and "p95" in text


def _cells(session: Session) -> list[tuple[str, str, str]]:
    """Characters and colours; a space has no foreground of its own."""
    screen = session.screen
    cells = (screen.buffer[y][x] for y in range(screen.lines) for x in range(screen.columns))
    return [(cell.data, cell.fg if cell.data.strip() else "", cell.bg) for cell in cells]


def test_both_drivers_show_the_same_screen_and_one_of_them_for_fewer_bytes() -> None:
    sessions = Session("sparing"), Session("textual")
    try:
        for session in sessions:
            assert _settled(session.until(_settled))
        assert _cells(sessions[0]) == _cells(sessions[1])
        assert len(sessions[0].raw) < len(sessions[1].raw) / 2
    finally:
        for session in sessions:
            session.end()


def test_a_resize_paints_the_whole_screen_anew() -> None:
    session = Session("sparing", (120, 40))
    try:
        session.until(_settled)
        session.resize(80, 24)
        # The terminal drops its upper lines: only a repaint brings the title back.
        text = session.until(lambda shown: shown.startswith(" specdeck") and "by position" in shown)
        assert "acceptance by position" in text
        session.resize(40, 10)
        text = session.until(lambda shown: shown.startswith(" specdeck") and "ITL" in shown)
        assert "accepted length" in text
        assert "by position" not in text
    finally:
        session.end()


def test_q_leaves_and_restores_the_terminal() -> None:
    session = Session("sparing")
    try:
        session.until(_settled)
        os.write(session.terminal, b"q")
        session.until(lambda _: b"\x1b[?1049l" in session.raw)
        assert session.raw.rindex(b"\x1b[?1049l") > session.raw.rindex(b"\x1b[?1049h")
        assert b"\x1b[?25h" in session.raw
        assert os.WEXITSTATUS(os.waitpid(session.pid, 0)[1]) == 0
    finally:
        os.close(session.terminal)
