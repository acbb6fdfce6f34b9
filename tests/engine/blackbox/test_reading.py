"""What a reader of a black box leaves beside it, nothing that did not lie there before, and what it
reads of a file that another user can write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.readings import START
from tests.support.recorded_engine import busy_readings, record

from specdeck.engine.blackbox import file as file_of_box
from specdeck.engine.blackbox import history as of_history
from specdeck.engine.blackbox.file import open_for_writing
from specdeck.engine.blackbox.history import History
from specdeck.engine.errors import ConfigError


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_whole(path: Path) -> int:
    with closing(History(path)) as history:
        return len(list(history.readings(START, START + 1_000)))


@pytest.mark.parametrize("copied", [True, False])
def test_a_reader_leaves_nothing_beside_the_file(copied: bool, tmp_path: Path) -> None:
    """A log and its index stayed, in whichever folder the file was sent to."""
    path = tmp_path / "a" / "box.db"
    record(path, busy_readings(25)).close()
    if copied:
        (tmp_path / "b").mkdir()
        path = path.rename(tmp_path / "b" / "sent.db")
    before, data = list_names(path.parent), path.read_bytes()
    assert read_whole(path) == 25
    assert (list_names(path.parent), path.read_bytes()) == (before, data)
    (tmp_path / "link.db").symlink_to(path)
    assert read_whole(tmp_path / "link.db") == 25
    assert list_names(path.parent) == before


def test_rows_that_only_the_log_has_are_read_and_stay_there(tmp_path: Path) -> None:
    path = tmp_path / "a" / "box.db"
    with closing(record(path, busy_readings(25))):
        sent = tmp_path / "b" / "sent.db"
        sent.parent.mkdir()
        shutil.copy(path, sent)
        log = sent.with_name("sent.db-wal")
        shutil.copy(path.with_name("box.db-wal"), log)
        before, data, logged = list_names(sent.parent), sent.read_bytes(), log.read_bytes()
        assert logged
        assert read_whole(sent) == 25
        assert list_names(sent.parent) == before
        assert (sent.read_bytes(), log.read_bytes()) == (data, logged)


def test_a_box_that_is_written_is_read_on_and_is_whole_afterwards(tmp_path: Path) -> None:
    path, readings = tmp_path / "box.db", busy_readings(60)
    record(path, readings[:20]).close()
    history = History(path)  # before the recorder begins anew
    with closing(record(path, readings[20:40])) as box:
        assert len(list(history.readings(START, START + 1_000))) == 40
        assert read_whole(path) == 40
        for one in readings[40:]:
            box.append(one)
        assert len(list(history.readings(START, START + 1_000))) == 60
    history.close()
    assert list_names(tmp_path) == ["box.db", "box.db.lock"]
    assert read_whole(path) == 60


READ_TWICE = """
import sys
from pathlib import Path
from typing import Any
from specdeck.engine.blackbox.history import History

history = History(Path(sys.argv[1]))
for _ in range(2):
    print(len(list(history.readings(0, 1e11))), flush=True)
    sys.stdin.readline()
history.close()
"""


def test_no_reader_is_ended_by_whoever_cuts_the_index_short(tmp_path: Path) -> None:
    path, sent = tmp_path / "box.db", tmp_path / "sent" / "box.db"
    sent.parent.mkdir()
    with closing(record(path, busy_readings(25))):
        for ending in ("", "-wal", "-shm", ".lock"):
            shutil.copy(path.with_name(f"box.db{ending}"), sent.with_name(f"box.db{ending}"))
    sent.chmod(0o666)
    index = sent.with_name("box.db-shm")
    before = {one.name: one.read_bytes() for one in sent.parent.iterdir()}
    reader = subprocess.Popen(
        [sys.executable, "-c", READ_TWICE, sent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert reader.stdout is not None
    assert int(reader.stdout.readline()) == 25
    assert {one.name: one.read_bytes() for one in sent.parent.iterdir()} == before
    os.truncate(index, 0)
    said, _ = reader.communicate(b"\n\n", timeout=30)
    assert (reader.returncode, int(said)) == (0, 25)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_root_changes_nothing_of_the_black_box_of_a_user(tmp_path: Path) -> None:
    path = tmp_path / "box.db"
    with closing(record(path, busy_readings(25))):
        for one in (tmp_path, *tmp_path.iterdir()):
            os.chown(one, 12345, 12345)
        before = {one: (one.read_bytes(), one.stat().st_mtime_ns) for one in tmp_path.iterdir()}
        assert read_whole(path) == 25
        after = {one: (one.read_bytes(), one.stat().st_mtime_ns) for one in tmp_path.iterdir()}
        assert after == before
        assert {one.stat().st_uid for one in after} == {12345}


def test_a_copy_is_of_one_moment_while_logs_come_and_go(tmp_path: Path) -> None:
    path, readings = tmp_path / "box.db", busy_readings(400)
    begun, ends = threading.Event(), threading.Event()

    def write() -> None:
        with closing(record(path, readings[:100])) as box:
            box._db.execute("PRAGMA wal_autocheckpoint = 8")
            path.chmod(0o666)
            for one in readings[100:]:
                box.append(one)
                begun.set()
                time.sleep(0.005)  # or a log comes and goes within each copy
            ends.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait(30)
    counts = []
    while not ends.is_set():
        with closing(History(path)) as history:
            counts.append(len(list(history.readings(START, START + 1_000))))
            assert (history.damage, history.is_copied) == (None, True)
    writer.join()
    assert counts == sorted(counts)
    assert counts[0] >= 100
    assert read_whole(path) == 400


def test_a_copy_is_not_current_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, readings = tmp_path / "box.db", busy_readings(30)
    with ExitStack() as stack:
        box = stack.enter_context(closing(record(path, readings[:20])))
        path.chmod(0o666)
        history = stack.enter_context(closing(History(path)))
        box.append(readings[20])
        assert history.is_current()
        monkeypatch.setattr(of_history, "COPIED_S", -1.0)
        assert not history.is_current()
        assert read_whole(path) == 21


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_no_log_and_no_index_of_others_is_opened_for_writing(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "box.db"
    record(path, busy_readings(5)).close()
    planted = path.with_name(f"box.db{ending}")
    planted.touch()
    planted.chmod(0o666)
    with pytest.raises(ConfigError) as refused:
        open_for_writing(path)
    assert refused.value.line() == (
        f"{planted}: a file that others can write: move it out of the way"
    )
    with pytest.raises(ConfigError, match="a file that others can write"):
        History(path)
    assert planted.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_reading_takes_over_no_log_that_another_user_lays_beside_an_own_file_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged, path = tmp_path / "forged.db", tmp_path / "open" / "box.db"
    path.parent.mkdir(mode=0o700)
    record(path, busy_readings(5)).close()
    path.parent.chmod(0o1777)
    path.with_name("box.db.lock").touch()  # by which a recorder may begin at any moment
    with closing(record(forged, busy_readings(25))):
        log = tmp_path / "log"
        shutil.copy(forged.with_name("forged.db-wal"), log)
        os.chown(log, 12345, 12345)
    before, refuse = path.read_bytes(), file_of_box._refuse_foreign_files

    def lay_log_afterwards(*what: Any) -> None:
        refuse(*what)
        if log.exists():
            log.rename(path.with_name("box.db-wal"))

    monkeypatch.setattr(file_of_box, "_refuse_foreign_files", lay_log_afterwards)
    with pytest.raises(ConfigError, match="another user's file"):
        History(path)
    assert path.read_bytes() == before
    path.with_name("box.db-wal").unlink()
    with closing(History(path)) as history:
        assert history.is_copied
        assert len(list(history.readings(START, START + 1_000))) == 5


def test_nobody_can_lay_a_log_beside_a_file_that_is_being_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, harden, names = tmp_path / "box.db", file_of_box._harden, []

    def look(db: Any) -> None:
        names.extend(sorted(one.name for one in tmp_path.iterdir()))
        harden(db)

    monkeypatch.setattr(file_of_box, "_harden", look)
    tmp_path.chmod(0o1777)
    with closing(open_for_writing(path)) as db:
        assert names == ["box.db", "box.db-journal", "box.db-shm", "box.db-wal"]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert not path.with_name("box.db-journal").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["box.db"]
    tmp_path.chmod(0o700)
    names.clear()
    open_for_writing(path).close()
    assert names == ["box.db"]


def test_no_file_with_another_name_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    (tmp_path / "box.db").hardlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match="a file with another name"):
        open_for_writing(tmp_path / "box.db")
    assert (tmp_path / "mine").read_bytes() == b""
