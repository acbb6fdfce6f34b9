"""How long the store remembers: old changes, old checks and the locks of checks that are gone."""

from __future__ import annotations

import sqlite3
from typing import Final

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.store.checks import lock_name
from specdeck.engine.store.database import Store

SETTLED_S: Final = 86_400.0
"""How long a clock has to call something old: what a wrong one has deleted cannot be had back."""

_OLD_ACTIONS = "FROM actions WHERE t < ? AND id <= ?"
_OLD_CHECKS = "FROM checks WHERE COALESCE(finished, t) < ? AND id <= ?"
_ANY = 2**62
"""Beyond the number of every row."""


def delete_older(store: Store, before: float, now: float) -> int:
    """Deletes what is older than `before` (Unix seconds); how many changes and checks that were.

    At first that is only noted, and it is deleted by a call `SETTLED_S` later: by then a clock
    that had jumped ahead of `now` has been set back, which takes the note back.

    A change is as old as its entry, a check as its end, an unfinished check as its beginning;
    one that a process works at stays. Nothing is written where nothing is old. Raises
    SpecdeckError when the file cannot be used.
    """
    with store.transaction(write=False) as db:
        note = db.execute("SELECT t, before, last_action, last_check FROM condemned").fetchone()
        is_any_old = _has_old(db, before)
    if note is None and not is_any_old:
        return 0
    if note is not None and 0 <= now - note[0] < SETTLED_S:
        return 0
    deleted = 0
    if note is not None and now >= note[0]:
        deleted = _delete(store, min(note[1], before), note[2], note[3])
    with store.transaction() as db:
        db.execute("DELETE FROM condemned")
        if _has_old(db, before):
            db.execute(
                "INSERT INTO condemned SELECT ?, ?, (SELECT COALESCE(MAX(id), 0) FROM actions),"
                " (SELECT COALESCE(MAX(id), 0) FROM checks)",
                (now, before),
            )
    return deleted


def _has_old(db: sqlite3.Connection, before: float) -> bool:
    statement = f"SELECT EXISTS (SELECT 1 {_OLD_ACTIONS}) OR EXISTS (SELECT 1 {_OLD_CHECKS})"
    return bool(db.execute(statement, (before, _ANY, before, _ANY)).fetchone()[0])


def _delete(store: Store, before: float, last_action: int, last_check: int) -> int:
    with store.transaction(write=False) as db:
        (actions,) = db.execute(f"SELECT COUNT(*) {_OLD_ACTIONS}", (before, last_action)).fetchone()
        old = db.execute(f"SELECT id {_OLD_CHECKS}", (before, last_check))
        checks = [int(id_) for (id_,) in old]
    # A check that another process works at is locked by it.
    checks = [check for check in checks if _take_lock(store, check)]
    if actions or checks:
        with store.transaction() as db:
            db.execute(f"DELETE {_OLD_ACTIONS}", (before, last_action))
            for check in checks:
                db.execute("DELETE FROM check_cases WHERE check_id = ?", (check,))
                db.execute("DELETE FROM checks WHERE id = ?", (check,))
    for check in checks:
        store.release_lock(lock_name(check))
    return int(actions) + len(checks)


def _take_lock(store: Store, check: int) -> bool:
    """False as well where something else lies in the lock's place: the other checks go."""
    try:
        return store.take_lock(lock_name(check))
    except SpecdeckError:
        return False
