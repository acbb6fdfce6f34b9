"""How long changes and checks are remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.checks import Checks, Compared
from specdeck.engine.store.database import Store
from specdeck.engine.store.retention import delete_older

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


def test_old_changes_and_checks_go_with_their_cases_and_locks(store: Store, tmp_path: Path) -> None:
    log, checks = AuditLog(store), Checks(store)
    for t in (10.0, 100.0):
        log.add(change(t))
    for began in (10.0, 90.0):
        run = checks.begin(f"key-{began}", began, URL, {})
        checks.add(run.id, [Compared(1, "cross", "0" * 16, detail={"at": 3})], {})
    store.close()
    with Store(tmp_path / "store.sqlite") as later:
        assert delete_older(later, before=50.0) == 2
        assert [action.t for action in AuditLog(later).actions()] == [100.0]
        assert count_cases(later) == 1
        assert Checks(later).find_unfinished("key-10.0") is None
        assert Checks(later).find_unfinished("key-90.0") is not None
    assert [p.name for p in tmp_path.glob("*.lock")] == ["store.sqlite-check-2.lock"]


def test_a_finished_check_is_as_old_as_its_end(store: Store) -> None:
    checks = Checks(store)
    run = checks.begin("key", 10.0, URL, {})
    checks.finish(run.id, 60.0, {"prompts": 0})
    assert delete_older(store, before=50.0) == 0
    assert [one.id for one in checks.history()] == [run.id]


def test_a_check_that_another_process_works_at_stays(store: Store, tmp_path: Path) -> None:
    run = Checks(store).begin("key", 10.0, URL, {})
    with Store(tmp_path / "store.sqlite") as other:
        assert delete_older(other, before=50.0) == 0
        found = Checks(other).find_unfinished("key")
    assert found is not None
    assert found.id == run.id


def test_nothing_is_written_where_nothing_is_old(store: Store, tmp_path: Path) -> None:
    AuditLog(store).add(change(100.0))
    with Store(tmp_path / "store.sqlite", patience_s=0.01) as other, store.transaction():
        assert delete_older(other, before=50.0) == 0  # would be held by the open transaction
