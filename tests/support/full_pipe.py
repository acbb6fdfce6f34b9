"""A pipe that takes nothing, as behind a pager in which nobody pages."""

from __future__ import annotations

import os
from contextlib import suppress


class FullPipe:
    """A pipe that takes nothing until it is read."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()
        os.set_blocking(self.writes, False)
        self.filled = 0
        with suppress(BlockingIOError):
            while True:
                self.filled += os.write(self.writes, b"\n" * 4096)
        os.set_blocking(self.writes, True)

    def read(self) -> bytes:
        """All until the last writer closes it, without what filled it."""
        content = b""
        while chunk := os.read(self.reads, 1 << 16):
            content += chunk
        return content[self.filled :]
