"""A disk without room is told from all else that SQLite fails at."""

import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.support.memory_audit import ACTION

from specdeck.engine.blackbox.file import translate_errors
from specdeck.engine.errors import ConfigError, UsageError
from specdeck.engine.store.audit import AuditLog
from specdeck.engine.store.database import Store
from specdeck.engine.store.full_disk import is_disk_full


def fill(path: Path) -> None:
    """Writes to a file that may not grow; SQLite tells that as it tells a full disk."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA max_page_count = 1")
        db.execute("CREATE TABLE a (b)")


def test_what_has_no_room_on_the_disk_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError) as raised:
        fill(tmp_path / "a.db")
    assert is_disk_full(raised.value, tmp_path)


def test_a_black_box_tells_a_full_disk_as_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with pytest.raises(ConfigError) as refused, translate_errors(path):
        fill(path)
    assert refused.value.line() == f"{path}: the disk is full: make room"
    with pytest.raises(ConfigError, match="the disk is full"), translate_errors(path):
        raise OSError(28, "No space left on device")


def test_no_other_error_is_told_as_a_full_disk_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([*about[:4], 0, *about[5:]]))
    with closing(sqlite3.connect(":memory:")) as db:
        with pytest.raises(sqlite3.OperationalError) as raised:
            db.execute("SELECT * FROM a")
        assert not is_disk_full(raised.value, tmp_path)
    with pytest.raises(sqlite3.OperationalError) as raised:
        sqlite3.connect(tmp_path)
    assert is_disk_full(raised.value, tmp_path)
    monkeypatch.undo()
    assert not is_disk_full(raised.value, tmp_path)


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process grows beyond a few kilobytes, and so not the index of a log."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_is_in_the_store_is_read_where_nothing_can_be_written_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "specdeck.sqlite"
    with Store(path) as store:
        AuditLog(store).add(ACTION)
    with no_room():
        found = Store(path)
        log = AuditLog(found)
        assert [one.who for one in log.actions()] == [ACTION.who]
        with pytest.raises(UsageError, match="cannot be used"):
            log.add(ACTION)
    with found:  # there is room again
        log.add(ACTION)
        assert len(log.actions()) == 2


def test_no_store_is_read_without_the_log_that_has_its_last_changes(tmp_path: Path) -> None:
    path, copy = tmp_path / "specdeck.sqlite", tmp_path / "copy" / "specdeck.sqlite"
    copy.parent.mkdir()
    with Store(path) as store:
        AuditLog(store).add(ACTION)
        for ending in ("", "-wal"):
            copy.with_name(f"{copy.name}{ending}").write_bytes(
                path.with_name(f"{path.name}{ending}").read_bytes()
            )
    with no_room(), pytest.raises(UsageError, match="cannot be used"):
        Store(copy)
    with Store(copy) as store:
        assert len(AuditLog(store).actions()) == 1
