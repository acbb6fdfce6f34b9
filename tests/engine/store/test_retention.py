"""How long changes and checks are remembered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.checks import Checks, Compared
from specdeck.engine.store.database import Store
from specdeck.engine.store.retention import SETTLED_S, delete_older

URL = "http://127.0.0.1:8000"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a folder of its own."""
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def change(t: float) -> Action:
    """A change at `t`."""
    return Action(t, "ada", URL, "prod", {"k": 4}, {"k": 3}, "specdeck set prod k=4")


def count_cases(store: Store) -> int:
    """Rows of compared prompts."""
    with store.transaction(write=False) as db:
        return int(db.execute("SELECT COUNT(*) FROM check_cases").fetchone()[0])


def delete_settled(store: Store, before: float) -> int:
    """What is deleted where the clock has called it old for a day."""
    assert delete_older(store, before, 0.0) == 0
    return delete_older(store, before, SETTLED_S)


def test_old_changes_and_checks_go_with_their_cases_and_locks(store: Store, tmp_path: Path) -> None:
    log, checks = AuditLog(store), Checks(store)
    for t in (10.0, 100.0):
        log.add(change(t))
    for began in (10.0, 90.0):
        run = checks.begin(f"key-{began}", began, URL, {})
        checks.add(run.id, [Compared(1, "cross", "0" * 16, detail={"at": 3})], {})
    store.close()
    with Store(tmp_path / "store.sqlite") as later:
        assert delete_settled(later, before=50.0) == 2
        assert [action.t for action in AuditLog(later).actions()] == [100.0]
        assert count_cases(later) == 1
        assert Checks(later).find_unfinished("key-10.0") is None
        assert Checks(later).find_unfinished("key-90.0") is not None
    assert [p.name for p in tmp_path.glob("*.lock")] == ["store.sqlite-check-2.lock"]


def test_a_finished_check_is_as_old_as_its_end(store: Store) -> None:
    checks = Checks(store)
    run = checks.begin("key", 10.0, URL, {})
    checks.finish(run.id, 60.0, {"prompts": 0})
    assert delete_settled(store, before=50.0) == 0
    assert [one.id for one in checks.history()] == [run.id]


def test_a_check_that_another_process_works_at_stays(store: Store, tmp_path: Path) -> None:
    run = Checks(store).begin("key", 10.0, URL, {})
    with Store(tmp_path / "store.sqlite") as other:
        assert delete_settled(other, before=50.0) == 0
        found = Checks(other).find_unfinished("key")
    assert found is not None
    assert found.id == run.id


def test_nothing_is_written_where_nothing_is_old(store: Store, tmp_path: Path) -> None:
    AuditLog(store).add(change(100.0))
    with Store(tmp_path / "store.sqlite", patience_s=0.01) as other, store.transaction():
        assert delete_older(other, 50.0, 0.0) == 0  # would be held by the open transaction


DAY = 86_400.0
KEPT_S = 90 * DAY
NOW = 1.8e9


def look(store: Store, now: float) -> list[float]:
    """The times of the changes that are left when a command has opened the store at `now`."""
    delete_older(store, now - KEPT_S, now)
    return [action.t for action in AuditLog(store).actions()]


@pytest.mark.parametrize("ahead", [91 * DAY, 400 * DAY, 1e10])
def test_a_clock_that_jumped_ahead_has_nothing_deleted(store: Store, ahead: float) -> None:
    AuditLog(store).add(change(NOW))
    for minutes in range(3):
        assert look(store, NOW + ahead + 60 * minutes) == [NOW]
    assert look(store, NOW + 60) == [NOW]
    assert look(store, NOW + DAY) == [NOW]
    assert look(store, NOW + ahead + 2 * DAY) == [NOW]


def test_what_was_noted_before_a_jump_goes_and_nothing_else(store: Store) -> None:
    for t in (NOW - 2 * KEPT_S, NOW):
        AuditLog(store).add(change(t))
    look(store, NOW)
    assert look(store, NOW + 400 * DAY) == [NOW]


def test_a_change_that_was_made_by_a_clock_long_ago_is_not_gone_at_once(store: Store) -> None:
    AuditLog(store).add(change(NOW - 2 * KEPT_S))
    look(store, NOW)
    AuditLog(store).add(change(10.0))
    assert look(store, NOW + DAY) == [10.0]
    assert look(store, NOW + 2 * DAY) == []


def test_days_that_were_raised_meanwhile_count(store: Store) -> None:
    AuditLog(store).add(change(NOW - 2 * KEPT_S))
    look(store, NOW)
    assert delete_older(store, NOW - 3 * KEPT_S, NOW + DAY) == 0


def test_what_lies_in_the_place_of_one_checks_lock_keeps_no_other(
    store: Store, tmp_path: Path
) -> None:
    checks = Checks(store)
    planted, _ = (checks.begin(key, 10.0, URL, {}).id for key in ("a", "b"))
    store.close()
    lock = tmp_path / f"store.sqlite-check-{planted}.lock"
    lock.unlink()
    os.mkfifo(lock)
    with Store(tmp_path / "store.sqlite") as later:
        assert delete_settled(later, before=50.0) == 1
