"""How long a black box remembers, and how much: what is oldest goes first."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

DAYS: Final = 7
MEGABYTES: Final = 500
_DAY_S: Final = 86_400.0
_PART: Final = 20
"""Of what lies between the first reading and now, the part that goes at a time."""
_TURNS: Final = 200
_FREE_PAGES: Final = 1_000
"""Free pages that are kept for what comes next."""

_OLDEST: Final = """
SELECT MIN(t) FROM (
    SELECT MIN(first) AS t FROM blocks UNION ALL SELECT MIN(t) FROM events
    UNION ALL SELECT MIN(t) FROM cohorts UNION ALL SELECT MIN(t) FROM documents)
"""
_DELETIONS: Final = (
    "DELETE FROM blocks WHERE last < ?",
    "DELETE FROM minutes WHERE (minute + 1) * 60.0 <= ?",
    "DELETE FROM events WHERE t < ?",
    "DELETE FROM cohorts WHERE t < ?",
    "DELETE FROM documents WHERE t < ?",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one black box holds."""

    days: float = DAYS
    megabytes: float = MEGABYTES
    """Millions of bytes."""


def delete_oldest(db: sqlite3.Connection, limits: Limits, now: float) -> None:
    """Deletes what is beyond `limits` at Unix time `now`, inside of a transaction of the caller's.

    What a cut leaves of a block stays until all of it is old.
    """
    _delete_before(db, now - limits.days * _DAY_S)
    for _ in range(_TURNS):
        (oldest,) = db.execute(_OLDEST).fetchone()
        if _size(db) <= limits.megabytes * 1e6 or oldest is None or oldest >= now:
            break
        _delete_before(db, oldest + max((now - oldest) / _PART, 1.0))
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free > _FREE_PAGES:
        db.execute(f"PRAGMA incremental_vacuum({free - _FREE_PAGES})").fetchall()


def _delete_before(db: sqlite3.Connection, t: float) -> None:
    for statement in _DELETIONS:
        db.execute(statement, (t,))


def _size(db: sqlite3.Connection) -> float:
    """Bytes in use."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    return float((pages - free) * size)
