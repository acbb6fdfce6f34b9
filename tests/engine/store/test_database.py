from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import memory_audit

from specdeck.engine.database_files import BESIDE, beside
from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.store import database
from specdeck.engine.store.audit import AuditLog
from specdeck.engine.store.checks import Checks, Compared
from specdeck.engine.store.database import Store, read_migrations
from specdeck.engine.store.distrust import distrust
from specdeck.engine.store.fingerprints import moments
from specdeck.engine.store.starts import Start, Starts

ACTION = replace(memory_audit.ACTION, origin=None)
"""As it is read where a file is older than origins."""
MIGRATIONS = read_migrations()
SCHEMA_2 = Path(__file__).with_name("schema-2.sql").read_text(encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "specdeck.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


def test_the_memory_outlives_the_session(path: Path) -> None:
    with Store(path) as first:
        AuditLog(first).add(ACTION)
    with Store(path) as second:
        assert AuditLog(second).actions() == (ACTION,)


def test_only_its_owner_can_read_it(path: Path) -> None:
    with Store(path) as store:
        AuditLog(store).add(ACTION)
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user")
def test_no_link_of_another_user_leads_the_audit_log_anywhere(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine.db", tmp_path / "specdeck.sqlite"
    with sqlite3.connect(mine) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()
    before = mine.read_bytes()
    link.symlink_to(mine)
    os.lchown(link, 12345, 12345)
    with pytest.raises(UsageError, match="a link of another user"):
        Store(link)
    assert mine.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
@pytest.mark.parametrize("ending", ["", "-wal"])
def test_no_store_of_another_user_has_the_audit_log(path: Path, ending: str) -> None:
    Store(path).close()
    other = beside(path, ending)
    other.touch()
    os.chown(other, 12345, 12345)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is a file of user 12345") as refused:
        Store(path)
    assert "run specdeck as user 12345, or set SPECDECK_HOME" in refused.value.line()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        (
            "ALTER TABLE actions RENAME TO others; CREATE VIEW actions AS WITH RECURSIVE c(x) AS"
            " (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS t FROM c WHERE x < 0",
            "view 'actions'",
        ),
        (
            "CREATE TRIGGER more AFTER INSERT ON actions BEGIN DELETE FROM actions; END",
            "trigger 'more'",
        ),
    ],
)
def test_a_store_with_more_than_tables_is_refused(path: Path, statements: str, named: str) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statements)
    with pytest.raises(UsageError, match=f"there is a {named} in it"):
        Store(path)


def test_a_question_without_an_end_is_given_up(store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr("specdeck.engine.store.database._QUESTION_S", 0.05)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT MAX(x) FROM c"
    with pytest.raises(UsageError, match="takes too long"), store.transaction(write=False) as db:
        db.execute(endless).fetchone()
    AuditLog(store).add(ACTION)
    assert AuditLog(store).actions() == (ACTION,)


@pytest.mark.parametrize("kind", ["pipe", "device", "kernel's"])
def test_what_is_no_regular_file_is_refused_unread(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "specdeck.sqlite"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/proc/version")
    with pytest.raises(UsageError, match="it is no regular file"):
        Store(path)


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_no_pipe_beside_the_store_is_waited_for(path: Path, ending: str) -> None:
    Store(path).close()
    other = beside(path, ending)
    other.unlink(missing_ok=True)
    os.mkfifo(other)
    with pytest.raises(UsageError, match=f"{other.name} beside it is no regular file"):
        Store(path)


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
def test_nothing_that_others_can_write_is_the_store_or_beside_it(path: Path, ending: str) -> None:
    Store(path).close()
    other = beside(path, ending)
    other.touch()
    other.chmod(0o666)
    before = other.read_bytes()
    with pytest.raises(UsageError, match=f"{other}: a file that others can write$"):
        Store(path)
    assert other.read_bytes() == before


@pytest.mark.parametrize("mode", [0o700, 0o1777])
def test_others_can_lay_no_log_beside_a_store_that_is_being_opened(
    path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).close()
    path.parent.chmod(mode)
    names: list[str] = []

    def look(db: sqlite3.Connection) -> None:
        names.extend(sorted(one.name for one in path.parent.iterdir()))
        distrust(db)

    monkeypatch.setattr(database, "distrust", look)
    with Store(path) as store:
        AuditLog(store).add(ACTION)
        assert not beside(path, "-journal").exists()
    laid = BESIDE if mode == 0o1777 else ()
    assert names == sorted(beside(path, ending).name for ending in ("", *laid))
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_what_lies_beside_a_linked_store_is_looked_at_where_it_is(tmp_path: Path) -> None:
    path, link = tmp_path / "there" / "specdeck.sqlite", tmp_path / "here" / "specdeck.sqlite"
    Store(path).close()
    link.parent.mkdir(mode=0o700)
    link.symlink_to(path)
    beside(path, "-wal").touch()
    beside(path, "-wal").chmod(0o666)
    with pytest.raises(UsageError, match="a file that others can write"):
        Store(link)


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_nothing_is_made_where_a_link_beside_the_store_leads(path: Path, ending: str) -> None:
    Store(path).close()
    link = path.with_name(f"{path.name}{ending}")
    link.symlink_to(path.with_name("made"))
    with pytest.raises(UsageError, match=f"{link}: a link$"):
        Store(path)
    assert not path.with_name("made").exists()


def test_no_log_is_written_over_a_file_with_another_name(path: Path) -> None:
    Store(path).close()
    mine, log = path.with_name("mine"), path.with_name(f"{path.name}-wal")
    mine.write_text("precious")
    log.hardlink_to(mine)
    with pytest.raises(UsageError, match=f"{log}: a file with another name$"):
        Store(path)
    assert mine.read_text() == "precious"


def test_no_mark_is_left_where_a_link_in_the_locks_place_leads(path: Path) -> None:
    with Store(path) as store:
        mine, lock = path.with_name("mine"), path.with_name(f"{path.name}-check-1.lock")
        mine.write_text("precious")
        lock.symlink_to(mine)
        with pytest.raises(UsageError, match=f"cannot be used: {lock}: a link$"):
            store.take_lock("check-1")
        store.mark_lock("check-1")
    assert mine.read_text() == "precious"


def test_links_in_a_circle_are_no_store(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(path.name)
    with pytest.raises(UsageError, match="cannot be used"):
        Store(path)


def test_a_full_disk_is_told_as_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls it an I/O error where the disk fills under the files beside its own."""
    with Store(path) as store:
        about = os.statvfs(path.parent)
        values = [*about[:4], 0, *about[5:]]
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))
        with pytest.raises(UsageError, match=r"the disk is full$"), store.transaction():
            raise sqlite3.OperationalError("disk I/O error")
        monkeypatch.undo()
        with pytest.raises(UsageError, match="disk I/O error"), store.transaction():
            raise sqlite3.OperationalError("disk I/O error")


def test_what_can_be_written_is_tried_by_writing(path: Path) -> None:
    """A transaction that writes nothing succeeds on a full disk beside an open store."""
    with Store(path), Store(path) as store:
        log = path.with_name(f"{path.name}-wal")
        before = log.stat().st_size
        store.require_writable()
        assert log.stat().st_size > before


def test_a_second_store_of_a_process_leaves_the_locks_of_the_first(path: Path) -> None:
    """A console writes its audit log while a check of its own has the store open."""
    with Store(path) as held:
        AuditLog(held).add(ACTION)
        with Store(path) as second:
            AuditLog(second).add(ACTION)
        _add_elsewhere(path)
        AuditLog(held).add(ACTION)
        _add_elsewhere(path)
        AuditLog(held).add(ACTION)
    with Store(path) as after:
        assert len(AuditLog(after).actions()) == 6


def _add_elsewhere(path: Path) -> None:
    """By a process that ends: the last one to close a store deletes its write-ahead log."""
    code = (
        "import sys; from pathlib import Path;"
        "from tests.engine.store.test_database import ACTION, AuditLog, Store\n"
        "with Store(Path(sys.argv[1])) as store: AuditLog(store).add(ACTION)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_several_at_once_lose_nothing(path: Path) -> None:
    def write(who: str) -> None:
        with Store(path, patience_s=20) as store:
            for number in range(20):
                AuditLog(store).add(replace(ACTION, who=who, t=float(number)))

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store(path) as store:
        assert len(AuditLog(store).actions(limit=1000)) == 80


def test_a_new_file_that_another_process_is_making_is_waited_for(path: Path) -> None:
    """SQLite does not wait for a writer where it changes how a file is written."""
    path.parent.mkdir()
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(SpecdeckError, match="held by another process"):
        Store(path, patience_s=0.05)
    release = threading.Timer(0.2, holder.execute, ("ROLLBACK",))
    release.start()
    Store(path, patience_s=20).close()
    release.join()
    holder.close()


def test_a_file_that_is_held_is_given_up_after_a_while(path: Path) -> None:
    with Store(path, patience_s=0.05) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(SpecdeckError, match="held by another process"):
            AuditLog(store).add(ACTION)
        holder.execute("ROLLBACK")
        holder.close()
        AuditLog(store).add(ACTION)
        assert AuditLog(store).actions() == (ACTION,)


def test_a_newer_file_is_left_alone(path: Path) -> None:
    Store(path).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {max(MIGRATIONS) + 1}")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="newer specdeck") as refusal:
        Store(path)
    assert "update specdeck" in refusal.value.line()
    assert path.read_bytes() == before


def test_a_file_with_a_schema_that_never_was_is_named(path: Path) -> None:
    Store(path).close()
    broken = sqlite3.connect(path)
    broken.execute("PRAGMA user_version = -1")
    broken.close()
    with pytest.raises(UsageError, match="cannot be used: its schema is -1"):
        Store(path)


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database, and long enough to be looked at as one\n" * 50)
    with pytest.raises(SpecdeckError, match=r"specdeck\.sqlite cannot be used"):
        Store(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecdeckError, match="cannot be used"):
        Store(tmp_path / "file" / "data" / "specdeck.sqlite")


def make_file(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True)
    old = sqlite3.connect(path)
    old.executescript(script)
    old.close()


def version(path: Path) -> int:
    db = sqlite3.connect(path)
    (found,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return int(found)


def test_migrations_are_numbered_without_a_gap() -> None:
    assert list(MIGRATIONS) == list(range(1, len(MIGRATIONS) + 1))


def test_a_file_of_the_first_schema_gains_the_checks_and_keeps_its_actions(path: Path) -> None:
    row = (
        "INSERT INTO actions (t, who, url, engine, before, after, undo, instance, reason, observed)"
        f" VALUES (1000.0, 'ana', '{ACTION.url}', 'demo', '{{\"k\": 5}}', '{{\"k\": 3}}',"
        f" '{ACTION.undo}', 'one', 'trying', 3.0);"
    )
    make_file(path, f"{MIGRATIONS[1]} {row} PRAGMA user_version = 1;")
    with Store(path) as store:
        assert AuditLog(store).actions() == (ACTION,)
        Checks(store).begin("key", 1000.0, ACTION.url, {})
    assert version(path) == max(MIGRATIONS)


def test_a_file_of_the_second_schema_keeps_a_row_of_everything(path: Path) -> None:
    make_file(path, SCHEMA_2)
    with Store(path) as store:
        later, first = AuditLog(store).actions()
        assert first == ACTION
        assert (later.who, later.after, later.observed) == ("ben", {"policy": "goodput"}, None)
        assert Starts(store).last("0123456789abcdef") == Start(900.0, "0123456789abcdef", 31.5)
        checks = Checks(store)
        (run,) = checks.history(ACTION.url)
        assert run.summary == {"verdict": "pass", "mismatch_rate": 0.5}
        assert list(checks.divergences(run.id, "cross")) == [
            Compared(1, "cross", "aaaa", detail={"index": 7})
        ]
        assert checks.refusals(run.id) == ((2, "too long"),)
        resumed = checks.resume("open")
        assert resumed is not None
        assert resumed.totals == {"prompts": 1}
        (found,) = moments(store, url=ACTION.url, limit=1)
        assert found.data["facts"]["live"] == {"k": 6}
    assert version(path) == max(MIGRATIONS)


def test_a_new_file_has_the_tables_of_a_migrated_one(tmp_path: Path) -> None:
    def tables(path: Path) -> list[tuple[str, str]]:
        Store(path).close()
        db = sqlite3.connect(path)
        found = db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        db.close()
        return found

    make_file(tmp_path / "old" / "store.sqlite", SCHEMA_2)
    assert tables(tmp_path / "old" / "store.sqlite") == tables(tmp_path / "store.sqlite")


def test_a_migration_runs_once_and_keeps_what_is_there(path: Path) -> None:
    make_file(path, SCHEMA_2)
    more = {1: "no SQL at all", 2: "nor this", 3: "ALTER TABLE starts ADD COLUMN host TEXT;"}
    for _ in range(2):
        with Store(path, migrations=more) as store, store.transaction() as db:
            assert db.execute("SELECT seconds, host FROM starts").fetchall() == [(31.5, None)]
    assert version(path) == 3


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    make_file(path, SCHEMA_2)
    broken = {**MIGRATIONS, 3: "DROP TABLE starts;\nDROP TABLE nowhere;\n"}
    with pytest.raises(SpecdeckError, match="no such table: nowhere"):
        Store(path, migrations=broken)
    assert version(path) == 2
    with Store(path, migrations={2: ""}) as store:
        assert Starts(store).last("0123456789abcdef") is not None


def test_two_that_find_an_old_file_migrate_it_once(path: Path) -> None:
    make_file(path, SCHEMA_2)
    more = {**MIGRATIONS, 3: "ALTER TABLE starts ADD COLUMN host TEXT;"}
    failures: list[SpecdeckError] = []

    def open_it() -> None:
        try:
            Store(path, migrations=more, patience_s=20).close()
        except SpecdeckError as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert version(path) == max(MIGRATIONS)


def test_a_transaction_that_breaks_leaves_nothing(store: Store) -> None:
    def half() -> None:
        with store.transaction() as db:
            db.execute("INSERT INTO starts (t, config, seconds) VALUES (1, 'a', 1)")
            raise KeyError("broken")

    with pytest.raises(KeyError):
        half()
    assert Starts(store).last("a") is None
