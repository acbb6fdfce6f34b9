"""Whether a disk without room is why a file of SQLite's cannot be used."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from specdeck.engine.files import NO_ROOM

_LEAST_ROOM = 65_536
"""Bytes of a disk below which SQLite's I/O error is told as the full disk that it comes of."""
_OF_THE_DISK: Final = (None, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""What SQLite makes of a disk that fills under the files beside its own."""


def is_disk_full(error: Exception, folder: Path) -> bool:
    """Whether `error`, of a file in `folder`, comes of a disk that is full.

    >>> is_disk_full(OSError(NO_ROOM[0], "No space left on device"), Path("/"))
    True
    >>> is_disk_full(ValueError("its schema is -1"), Path("/"))
    False
    """
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    if not isinstance(error, sqlite3.OperationalError):
        return False
    told: int | None = getattr(error, "sqlite_errorcode", None)  # none of what Python raises itself
    code = None if told is None else told & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return True
    try:
        about = os.statvfs(folder)
    except OSError:
        return False
    return code in _OF_THE_DISK and about.f_bavail * about.f_frsize < _LEAST_ROOM
