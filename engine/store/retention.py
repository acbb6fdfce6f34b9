"""How long the store remembers: old changes, old checks and the locks of checks that are gone."""

from __future__ import annotations

from specdeck.engine.store.checks import lock_name
from specdeck.engine.store.database import Store

_OLD_ACTIONS = "FROM actions WHERE t < ?"
_OLD_CHECKS = "FROM checks WHERE COALESCE(finished, t) < ?"


def delete_older(store: Store, before: float) -> int:
    """Deletes what is older than `before` (Unix seconds); how many changes and checks that were.

    A change is as old as its entry, a check as its end, an unfinished check as its beginning;
    one that a process works at stays. Nothing is written where nothing is old. Raises
    SpecdeckError when the file cannot be used.
    """
    with store.transaction(write=False) as db:
        (actions,) = db.execute(f"SELECT COUNT(*) {_OLD_ACTIONS}", (before,)).fetchone()
        checks = [int(id_) for (id_,) in db.execute(f"SELECT id {_OLD_CHECKS}", (before,))]
    # A check that another process works at is locked by it.
    checks = [check for check in checks if store.take_lock(lock_name(check))]
    if actions or checks:
        with store.transaction() as db:
            db.execute(f"DELETE {_OLD_ACTIONS}", (before,))
            for check in checks:
                db.execute("DELETE FROM check_cases WHERE check_id = ?", (check,))
                db.execute("DELETE FROM checks WHERE id = ?", (check,))
    for check in checks:
        store.release_lock(lock_name(check))
    return int(actions) + len(checks)
