"""What a reader of a black box leaves beside it: nothing that did not lie there before."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.readings import START
from tests.support.recorded_engine import busy_readings, record

from specdeck.engine.blackbox.history import History


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
