"""Programs in pseudo-terminals: what they write, as bytes. Standard library only."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class PseudoTerminal:
    """A program in a pseudo-terminal of its own; what it writes, as bytes."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], size: str = "120x40"
    ) -> None:
        self._master, self._slave = pty.openpty()
        self._is_open = True
        self.set_size(size)
        self.first_modes = self.modes()
        """What the program found."""
        # They outrank the terminal's own size, and pytest-xdist sets them for its workers.
        inherited = {k: v for k, v in environment.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            env={**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def set_size(self, size: str) -> None:
        """Gives the terminal a size, as COLUMNSxROWS."""
        columns, rows = map(int, size.split("x"))
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[object]:
        """The terminal's modes, as termios has them."""
        return list(termios.tcgetattr(self._slave))

    @contextmanager
    def in_lines(self) -> Iterator[None]:
        """Has the terminal collect lines, as some other program may, while the block runs."""
        before = termios.tcgetattr(self._slave)
        lines = termios.tcgetattr(self._slave)
        lines[3] |= termios.ICANON
        termios.tcsetattr(self._slave, termios.TCSANOW, lines)
        yield
        termios.tcsetattr(self._slave, termios.TCSANOW, before)

    def press(self, keys: str) -> None:
        """Types."""
        self.send(keys.encode())

    def send(self, data: bytes) -> None:
        """Has bytes arrive that no keyboard may have sent."""
        os.write(self._master, data)

    def read(self, patience_s: float) -> bytes:
        """The next that the program writes; nothing if it writes nothing for so long."""
        if not select.select([self._master], [], [], patience_s)[0]:
            return b""
        try:
            return os.read(self._master, 65536)
        except OSError:  # the program has gone
            return b""

    def vanish(self) -> None:
        """Takes the terminal away; no signal tells the program."""
        for end in (self._master, self._slave):
            os.close(end)
        self._is_open = False

    def close(self) -> None:
        """Ends the program, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._is_open:
            self.vanish()
