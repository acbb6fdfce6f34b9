"""The files that SQLite opens beside one of its own, kept from whoever can make files there.

What lies there under their names is believed: a log is written into the file, a journal as well,
and the index of a log is mapped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

BESIDE: Final = ("-wal", "-shm", "-journal")
"""What their names end in."""
NEW: Final = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a file is made in the place of nothing."""


def beside(path: Path, ending: str) -> Path:
    """The file beside `path` whose name ends in that as well."""
    return path.with_name(f"{path.name}{ending}")


def is_open(folder: Path) -> bool:
    """Whether another user can make files in it; raises OSError."""
    about = folder.stat()
    return bool(about.st_mode & stat.S_IWOTH) or about.st_uid not in (0, os.geteuid())


@contextmanager
def keep_names(path: Path) -> Iterator[None]:
    """Has nobody else lay a log or a journal beside the file while it is opened for writing.

    Empty ones say nothing to SQLite, and in a folder like /tmp only their owner can remove them.
    What is there already is for the caller to look at within. Raises OSError where the folder
    cannot be looked at.
    """
    if not is_open(path.parent):
        yield
        return
    made: list[str] = []
    idle: tuple[str, ...] = BESIDE
    try:
        for ending in BESIDE:
            with suppress(OSError):  # it is there, or nothing can be made there at all
                os.close(os.open(beside(path, ending), NEW, 0o600))
                made.append(ending)
        yield
        idle = BESIDE[2:]  # the others are in use
    finally:
        for ending in made:
            if ending in idle:
                with suppress(OSError):
                    beside(path, ending).unlink()
