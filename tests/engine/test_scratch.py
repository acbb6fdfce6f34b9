"""Folders of work that is killed are left to the next one, and nobody else's are touched."""

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from specdeck.engine.errors import UsageError
from specdeck.engine.scratch import scratch_folder

WORK = """
import sys
from pathlib import Path
from specdeck.engine.scratch import scratch_folder
with scratch_folder("work", Path(sys.argv[1])) as folder:
    (folder / "half").write_text("done")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_its_owners_only_and_goes_with_the_work(tmp_path: Path) -> None:
    with scratch_folder("work", tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "half").write_text("done")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_moved_away_stays_there(tmp_path: Path) -> None:
    with scratch_folder("work", tmp_path) as folder:
        folder.rename(tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_no_folder_goes_that_another_user_gave_the_name_of_one(tmp_path: Path) -> None:
    """Whoever can write in a folder that is not sticky can rename all that lies there."""
    mine, named = tmp_path / "mine", tmp_path / "work-1-abcdefgh"
    mine.mkdir()
    (mine / "precious").touch()
    with scratch_folder("work", tmp_path) as folder:
        folder.rename(tmp_path / "away")
        mine.rename(folder)
    folder.rename(named)
    tmp_path.chmod(0o777)
    with scratch_folder("work", tmp_path):
        assert (named / "precious").exists()
    tmp_path.chmod(0o1777)
    with scratch_folder("work", tmp_path):  # sticky: it can be of this user's doing alone
        assert not named.exists()


def test_what_a_killed_process_left_goes_with_the_next_and_what_a_living_one_has_stays(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORK, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with scratch_folder("work", tmp_path):
            assert (left / "half").exists()
        process.kill()
    assert (left / "half").exists()
    with scratch_folder("other", tmp_path):
        assert left.exists()
    with scratch_folder("work", tmp_path):
        assert not left.exists()


def test_nothing_else_that_is_called_alike_goes(tmp_path: Path) -> None:
    (tmp_path / "work-baseline").mkdir()
    (tmp_path / "work-1-abcdefgh.old").mkdir()
    (tmp_path / "work-1-abcdefgh").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work-2-abcdefgh").symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.iterdir())
    with scratch_folder("work", tmp_path):
        pass
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_another_users_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "work-1-abcdefgh"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    with scratch_folder("work", tmp_path):
        assert theirs.exists()


def test_where_there_are_no_locks_nothing_is_taken_for_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "work-1-abcdefgh").mkdir()
    with scratch_folder("work", tmp_path) as folder:
        assert folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["work-1-abcdefgh"]


def test_a_folder_that_another_took_for_abandoned_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp
    taken: list[str] = []

    def lose(**given: object) -> str:
        folder: str = make(**given)  # type: ignore[call-overload]  # what was asked for
        if not taken:
            os.rmdir(folder)
            taken.append(folder)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", lose)
    with scratch_folder("work", tmp_path) as folder:
        assert folder.exists()
    assert len(taken) == 1


def test_no_folder_for_temporary_files_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in [...]")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with pytest.raises(UsageError, match="no folder for temporary files"), scratch_folder("a"):
        pass
