"""A run belongs to one process at a time; the system lets go of it when that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Claims:
    """Locks beside a file of the store: one for each run that is under way."""

    def __init__(self, beside: Path) -> None:
        self._beside = beside
        self._held: dict[int, int] = {}

    def take(self, run: int) -> bool:
        """Whether `run` belongs to this store; False while another one works at it."""
        if run in self._held:
            return True
        file = os.open(self._place(run), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:
            pass  # a file system without locks: better no guard than no check
        self._held[run] = file
        return True

    def end(self, run: int) -> None:
        """Lets go of `run` for good."""
        if (file := self._held.pop(run, None)) is not None:
            self._place(run).unlink(missing_ok=True)
            os.close(file)

    def close(self) -> None:
        """Lets go of all of them; another process may go on with each."""
        for file in self._held.values():
            os.close(file)
        self._held.clear()

    def _place(self, run: int) -> Path:
        return self._beside.with_name(f"{self._beside.name}-check-{run}.lock")
