"""Files read with a bound and written whole."""

from __future__ import annotations

import errno
import io
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine import files
from specdeck.engine.files import (
    ABANDONED_S,
    open_lock,
    read_file,
    refuse_foreign,
    replace_file,
    write_whole,
)


def test_what_killed_writers_left_is_removed_and_what_is_being_written_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "digests.json"
    old, young = (tmp_path / f".digests.json.{end * 8}" for end in ("1a", "2b"))
    others = [tmp_path / f".digests.json.{end}" for end in ("11", "20261120", "backup")]
    link = tmp_path / f".digests.json.{'3c' * 8}"
    link.symlink_to(others[0])
    for left in (old, young, *others):
        left.write_text("half")
    for left in (*others, link):
        os.utime(left, (0, 0), follow_symlinks=False)
    then = old.stat().st_mtime - ABANDONED_S - 60
    os.utime(old, (then, then))
    replace_file(path, "whole")
    assert path.read_text() == "whole"
    assert set(tmp_path.iterdir()) == {young, link, *others, path}


@pytest.mark.parametrize(
    "name", ["n" * 240, "n" * 255, "ä" * 127, "a" + "ä" * 127], ids=("240", "255", "even", "odd")
)
def test_a_file_may_have_the_longest_name_that_there_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    replace_file(path, "first")
    left = tmp_path / f"{files._partial_start(path)}{'1' * 16}"
    left.write_text("half")
    os.utime(left, (0, 0))
    replace_file(path, "second")
    assert path.read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_no_link_that_others_left_is_written_through(tmp_path: Path) -> None:
    path, victim = tmp_path / "baseline.json", tmp_path / "victim"
    victim.write_text("precious")
    for guess in (os.getpid(), "0" * 16, "tmp"):
        (tmp_path / f".{path.name}.{guess}").symlink_to(victim)
    path.symlink_to(victim)
    replace_file(path, "whole")
    assert (victim.read_text(), path.read_text()) == ("precious", "whole")
    assert not path.is_symlink()


def test_a_name_that_is_taken_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = tmp_path / "baseline.json", tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("os.urandom", lambda size: b"\x11" * size)
    (tmp_path / f".{path.name}.{'1' * 16}").symlink_to(victim)
    with pytest.raises(FileExistsError):
        replace_file(path, "whole")
    assert victim.read_text() == "precious"


def test_a_failed_write_leaves_the_old_text_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "pin.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(path, "text")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_for_its_owner_alone_is_so_from_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("old")
    path.chmod(0o644)
    replace_file(path, "new", mode=0o600)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o666, 0o644)])
def test_a_file_that_is_replaced_is_not_opened_to_others(
    tmp_path: Path, before: int, after: int
) -> None:
    path = tmp_path / "report.json"
    path.touch()
    path.chmod(before)
    mask = os.umask(0o022)
    try:
        replace_file(path, "new")
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == after


def test_a_regular_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link", most=5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_file(path, most=4)


@pytest.mark.parametrize("name", ["pipe", "folder", "zero"])
def test_what_is_no_regular_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="not a regular file"):
        read_file(tmp_path / name, most=100)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("place", ["", ".", "/"])
def test_no_file_takes_the_place_of_a_folder_without_a_name(place: str) -> None:
    with pytest.raises(IsADirectoryError):
        replace_file(Path(place), "whole")


@pytest.mark.parametrize("name", ["pipe", "null", "stdout", "socket"])
def test_no_file_takes_the_place_of_a_device_or_a_pipe(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "redirected").write_text("what was said before")
    with (
        socket.socket(socket.AF_UNIX) as listener,
        (tmp_path / "redirected").open() as redirected,
    ):
        listener.bind(str(tmp_path / "socket"))
        (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{redirected.fileno()}")
        path = tmp_path / name
        before = path.lstat()
        with pytest.raises(OSError, match="not a regular file"):
            replace_file(path, "whole")
        assert os.path.samestat(path.lstat(), before)
    assert not [left for left in tmp_path.iterdir() if left.name.startswith(".")]


@pytest.mark.parametrize("links", [True, False])
def test_what_has_come_meanwhile_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr("os.link", refuse)
    path = tmp_path / "out.csv"
    with write_whole(path, mode=0o600, over=False) as file:
        file.write(b"first")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"first", 0o600)
    with pytest.raises(FileExistsError), write_whole(path, over=False) as file:
        file.write(b"second")
    with write_whole(path) as file:
        file.write(b"third")
    assert path.read_bytes() == b"third"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "out.csv"
    with pytest.raises(FileNotFoundError) as raised, write_whole(path):
        pass
    assert raised.value.filename == str(path)


def test_a_writer_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with write_whole(tmp_path / "out.csv") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_has_nothing_to_read_yet_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting(io.BytesIO):
        """As `/proc/kmsg`, read without waiting."""

        def read(self, *_: Any) -> Any:
            return None

    monkeypatch.setattr(files, "open_file", lambda path: Waiting())
    with pytest.raises(OSError, match="not a file with an end"):
        read_file(Path("/proc/kmsg"), most=4)


def test_a_disk_without_room_says_for_which_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as raised, write_whole(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "a")


FAULTS = {
    "link": "a link",
    "link to nothing": "a link",
    "pipe": "not a regular file",
    "other name": "a file with another name",
    "open to all": "a file that others can write",
    "another user's": "another user's file",
}


@pytest.mark.parametrize("planted", FAULTS)
def test_nothing_that_another_user_can_leave_is_taken_for_a_lock(
    planted: str, tmp_path: Path
) -> None:
    lock, mine = tmp_path / "lock", tmp_path / "mine"
    mine.write_text("precious")
    mine.chmod(0o640)
    if planted == "pipe":
        os.mkfifo(lock)
    elif planted == "other name":
        lock.hardlink_to(mine)
    elif planted.startswith("link"):
        lock.symlink_to(mine if planted == "link" else tmp_path / "made")
    else:
        lock.touch()
        lock.chmod(0o666 if planted == "open to all" else 0o600)
    if planted == "another user's":
        if os.geteuid() != 0:
            pytest.skip("gives a file to another user")
        os.chown(lock, 12345, 12345)
    before = lock.lstat()
    with pytest.raises(OSError, match=FAULTS[planted]):
        open_lock(lock)
    assert (lock.lstat().st_mode, lock.lstat().st_uid) == (before.st_mode, before.st_uid)
    assert (mine.read_text(), mine.stat().st_mode & 0o777) == ("precious", 0o640)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["lock", "mine"]


def test_a_group_that_a_files_mode_lets_write_is_trusted(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    kept.chmod(0o660)
    assert refuse_foreign(kept) is not None


def test_who_can_read_a_lock_can_hold_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(mode=0o644)
    os.close(open_lock(lock))
    assert lock.stat().st_mode & 0o777 == 0o600
