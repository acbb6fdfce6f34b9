"""SQLite's files that somebody else may have made: what asking one may cost."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

QUERY_S: Final = 5.0
"""The longest that one question to a foreign file may take."""
_STEPS: Final = 10_000


def distrust(db: sqlite3.Connection) -> None:
    """Has nothing that a file says of itself run more than plain SQL, or end the reading of it."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.execute("PRAGMA mmap_size = 0")
    db.text_factory = _read_text


@contextmanager
def limit_time(
    db: sqlite3.Connection, seconds: float = QUERY_S, steps: int = _STEPS
) -> Iterator[None]:
    """Ends what is asked of `db` within it after so many seconds, as an OperationalError.

    The time is looked at once in so many `steps` of SQLite's.
    """
    ends = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > ends, steps)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)


def _read_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
