"""Programs in pseudo-terminals, and the screens they draw."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

from tests.support.command import PATIENCE_S
from tests.support.pseudo_terminal import PseudoTerminal

# A terminal's own protocols, which pyte writes on the screen as text.
_NOT_FOR_PYTE = re.compile(rb"\x1b\[[<>=][0-9;]*[a-z]|\x1b\[\?[0-9;]*\$p")


class Terminal(PseudoTerminal):
    """A program in a pseudo-terminal, and the screen it draws."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], size: str = "120x40"
    ) -> None:
        self.screen = pyte.Screen(*map(int, size.split("x")))
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        super().__init__(command, environment, size)

    def resize(self, size: str) -> None:
        """Another size, as COLUMNSxROWS; the program is told."""
        columns, rows = map(int, size.split("x"))
        self.screen.resize(rows, columns)
        self.set_size(size)
        self.process.send_signal(signal.SIGWINCH)

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.screen.display)

    def until(self, found: Callable[[str], object], timeout: float = PATIENCE_S) -> str:
        """The screen as soon as `found` is true of it."""
        ends = time.monotonic() + timeout
        while True:
            self.drain()
            if found(self.text):
                return self.text
            assert time.monotonic() < ends, f"not on the screen in {timeout} s:\n{self.text}"

    def until_still(self, found: Callable[[str], object], seconds: float = 1.0) -> str:
        """The screen once `found` is true of it and nothing was written for so long.

        A screen comes in several writes: what is there between two of them may never come again.
        """
        while True:
            shown = self.until(found)
            self.drain(seconds)
            if self.text == shown:
                return shown

    def drain(self, seconds: float = 0.05) -> None:
        """Takes in what the program writes until it writes nothing for so long."""
        while data := self.read(seconds):
            self.raw += data
            self._stream.feed(_NOT_FOR_PYTE.sub(b"", data))

    def flood(self, data: bytes, seconds: float) -> None:
        """Types the same as fast as the program takes it."""
        ends, left = time.monotonic() + seconds, b""
        os.set_blocking(self._master, False)
        while time.monotonic() < ends:
            self.drain(0.01)
            left = left or data
            try:
                left = left[os.write(self._master, left) :]
            except BlockingIOError:
                time.sleep(0.01)
        os.set_blocking(self._master, True)

    def memory(self) -> int:
        """The bytes of it that are in memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """The program's exit code."""
        ends = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < ends:
            self.drain()
        self.drain()
        return self.process.wait(timeout=1)

    def is_restored(self) -> bool:
        """Whether the program left the terminal as it was."""
        left = self.raw.rindex(b"\x1b[?1049l") > self.raw.rindex(b"\x1b[?1049h")
        shown = self.raw.rindex(b"\x1b[?25h") > self.raw.rindex(b"\x1b[?25l")
        return left and shown and self.modes() == self.first_modes
