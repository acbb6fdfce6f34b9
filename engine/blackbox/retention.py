"""How long a black box remembers, and how much: what is oldest goes first."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

DAYS: Final = 7
MEGABYTES: Final = 500
_DAY_S: Final = 86_400.0
_SETTLED: Final = 3_600
"""Readings that have to agree on what time it is before anything is deleted for its age."""
_AHEAD_S: Final = 3_600.0
"""How far what is not a reading may lie after the last one."""
_FREE_PAGES: Final = 1_000
"""Free pages that are kept for what comes next."""

_DELETIONS: Final = (
    "DELETE FROM blocks WHERE last < ?",
    "DELETE FROM minutes WHERE (minute + 1) * 60.0 <= ?",
    "DELETE FROM events WHERE t < ?",
    "DELETE FROM cohorts WHERE t < ?",
    "DELETE FROM documents WHERE t < ?",
)
_OTHERS: Final = ("cohorts", "documents", "events")
_DELETIONS_AHEAD: Final = (
    "DELETE FROM minutes WHERE minute * 60.0 > ?",
    *(f"DELETE FROM {table} WHERE t > ?" for table in _OTHERS),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one black box holds."""

    days: float = DAYS
    megabytes: float = MEGABYTES
    """Millions of bytes."""


def delete_oldest(db: sqlite3.Connection, limits: Limits) -> None:
    """Deletes what is beyond `limits`, inside of a transaction of the caller's.

    What a cut leaves of a block stays until all of it is old, and the newest block always stays.
    """
    days = limits.days * _DAY_S
    now = find_settled_time(db, min(_SETTLED, max(int(days / 20), 1)))
    if now is not None:
        _delete_before(db, now - days)
    _fit(db, limits.megabytes * 1e6)
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free > _FREE_PAGES:
        db.execute(f"PRAGMA incremental_vacuum({free - _FREE_PAGES})").fetchall()


def find_settled_time(db: sqlite3.Connection, readings: int = _SETTLED) -> float | None:
    """The earliest Unix time of so many last readings; None where there are not so many.

    A clock that jumps ahead, for one reading or for an hour, does not move it: what a wrong clock
    calls old cannot be had back.
    """
    (last_n,) = db.execute("SELECT MAX(last_n) FROM blocks").fetchone()
    if last_n is None or last_n < readings:
        return None
    (found,) = db.execute(
        "SELECT MIN(first) FROM blocks WHERE last_n > ?", (last_n - readings,)
    ).fetchone()
    return found if isinstance(found, float) else None


def _fit(db: sqlite3.Connection, most: float) -> None:
    """Deletes the blocks that were written first, and what happened then, until it fits."""
    while _size(db) > most:
        (count,) = db.execute(
            "SELECT COUNT(*) FROM (SELECT first_n FROM blocks ORDER BY first_n LIMIT 2)"
        ).fetchone()
        if count < 2:
            break
        db.execute("DELETE FROM blocks WHERE first_n = (SELECT MIN(first_n) FROM blocks)")
        (first, last) = db.execute("SELECT MIN(first), MAX(last) FROM blocks").fetchone()
        _delete_before(db, first)
        # Of a clock that was ahead, or told by somebody else's: no block will take it along.
        for statement in _DELETIONS_AHEAD:
            db.execute(statement, (last + _AHEAD_S,))
    for table in _OTHERS:
        while _size(db) > most:
            cut = f"SELECT (MIN(n) + MAX(n)) / 2 FROM {table}"
            if not db.execute(f"DELETE FROM {table} WHERE n <= ({cut})").rowcount:
                break


def _delete_before(db: sqlite3.Connection, t: float) -> None:
    for statement in _DELETIONS:
        db.execute(statement, (t,))


def _size(db: sqlite3.Connection) -> float:
    """Bytes in use."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    return float((pages - free) * size)
