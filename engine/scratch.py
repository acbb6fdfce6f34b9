"""Folders for what lasts as long as a piece of work, also where that is killed.

A folder is locked by whoever works in it. The system drops the lock with the process, and the next
one that wants such a folder removes those that nobody has.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from specdeck.engine.errors import UsageError

_TRIES = 10
_OURS = re.compile(r"[0-9]+-[a-z0-9_]{8}")
"""What ends the name of one: the process that made it, and what `mkdtemp` adds."""


@contextmanager
def scratch_folder(name: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent` whose name begins with `name`, for its owner only.

    Without a parent it is in the system's folder for such. It is removed when this ends, and may
    have been moved away by then. What killed processes have left of the same name goes at first.
    Raises OSError, and UsageError where the system has no such folder.
    """
    parent = find_temporary() if parent is None else parent
    _remove_abandoned(name, parent)
    folder, lock = _make(name, parent)
    try:
        yield folder
    finally:
        with suppress(OSError):
            if _is_at(lock, folder):  # another may have come in its place
                shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def find_temporary() -> Path:
    """The system's folder for temporary files; raises UsageError where none can be written to."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise UsageError(
            "no folder for temporary files can be written to",
            remedy="set TMPDIR to one that can, and see whether the disk is full",
        ) from error


def _make(name: str, parent: Path) -> tuple[Path, int]:
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-{os.getpid()}-", dir=parent))
        # Before it was locked, another process may have taken it for one that nobody has.
        with suppress(FileNotFoundError):
            lock = _open(folder)
            try:
                is_ours = _lock(lock) is not False and _is_at(lock, folder)
            except BaseException:
                os.close(lock)
                raise
            if is_ours:
                return folder, lock
            os.close(lock)
    raise FileExistsError(f"{parent}: another process removes every folder that is made there")


def _remove_abandoned(name: str, parent: Path) -> None:
    """Only this user's own, and none where the file system has no locks, or where others can give
    such a name to any folder of this user's."""
    start = f"{name}-"
    if _can_others_rename(parent):
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not (entry.name.startswith(start) and _OURS.fullmatch(entry.name[len(start) :])):
                continue
            with suppress(OSError):
                lock = _open(Path(entry.path))
                try:
                    if os.fstat(lock).st_uid == os.geteuid() and _lock(lock):
                        shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(lock)


def _can_others_rename(parent: Path) -> bool:
    """Whether another user may rename what this one has in `parent`; so may the owner of any
    folder, and in one that others can write whoever can, unless it is sticky as /tmp."""
    try:
        about = parent.stat()
    except OSError:
        return True
    is_open = about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
    return bool(is_open) or about.st_uid not in (0, os.geteuid())


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _lock(folder: int) -> bool | None:
    """Whether the lock was free and is had now; None where there are no locks."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(folder: int, path: Path) -> bool:
    return os.path.samestat(os.fstat(folder), path.lstat())
