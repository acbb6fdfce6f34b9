"""The black boxes of one user: which there are, by the engine's name or URL, and which are old."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from specdeck.engine.blackbox.file import find_last_write, take_lock, translate_errors
from specdeck.engine.blackbox.history import History
from specdeck.engine.database_files import beside
from specdeck.engine.errors import SpecdeckError, UsageError

_SUFFIX: Final = ".db"
_MOST: Final = 1_000
"""Files of a folder that are looked at."""


@dataclass(frozen=True, slots=True)
class BoxFile:
    """One black box in the folder."""

    path: Path
    url: str
    name: str
    changed: float
    """Unix time at which it was written last."""
    size: int
    """Bytes, its log among them."""


def box_path(folder: Path, url: str) -> Path:
    """Where the black box of the engine at `url` lies.

    >>> box_path(Path("boxes"), "http://gpu1:8000/a").name
    'gpu1-8000-a-e03ce392.db'
    """
    try:
        parts = urlsplit(url)
        words = f"{parts.netloc}{parts.path}"
    except ValueError:  # what somebody typed, and no engine has
        words = url
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:60]
    name = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return folder / f"{readable or 'engine'}-{name}{_SUFFIX}"


def list_boxes(folder: Path) -> tuple[BoxFile, ...]:
    """The black boxes in `folder`, the one written last first; what is none is left out."""
    found = []
    for path, changed, size in _files(folder):
        with suppress(SpecdeckError):
            history = History(path)
            found.append(BoxFile(path, history.url, history.name, changed, size))
            history.close()
    return tuple(sorted(found, key=lambda one: -one.changed))


def is_there(path: Path) -> bool:
    """Whether something lies at `path`; raises ConfigError where that cannot be told, in a folder
    of another user or on a disk that does not answer."""
    with translate_errors(path):
        return path.exists()


def open_history(folder: Path, wanted: str, name: str | None = None) -> History:
    """The black box that `wanted` names: a file, an engine's URL, or what people call the engine.

    Of several engines of one name it is the one recorded last. A URL is no file, whatever lies in
    the working folder. An engine that came back at another URL, at which nothing is recorded, has
    the box of its `name`. Raises UsageError where there is none, and what History raises.
    """
    if "://" not in wanted and (wanted.endswith(_SUFFIX) or Path(wanted).is_file()):
        return History(Path(wanted))
    path = box_path(folder, wanted.rstrip("/"))
    with translate_errors(path):
        is_recorded = path.is_file()
    if is_recorded:
        return History(path)
    boxes = list_boxes(folder)
    for one in filter(None, (wanted, name)):
        for box in boxes:
            if one in (box.name, box.url, _read_host(box.url)):
                return History(box.path)
    known = ", ".join(dict.fromkeys(box.name for box in boxes[:10]))
    raise UsageError(
        f"nothing is recorded of {wanted.partition('?')[0].partition('#')[0]}",  # keys behind them
        remedy=f"recorded are {known}" if known else "record with `specdeck record URL`",
    )


def remove_abandoned(folder: Path, before: float) -> int:
    """Removes the black boxes that nobody has written since `before`, Unix seconds; how many.

    One that a process has open for writing stays, and so does what no recorder writes by its name:
    a copy that somebody keeps, or no black box at all.
    """
    number = 0
    for path, changed, _ in _files(folder):
        if changed >= before or not _is_recorders(path):
            continue
        lock = None
        with suppress(SpecdeckError, OSError):
            lock = take_lock(path)
            # Looked at once more: a writer may have come and gone before the lock was taken.
            if lock is not None and find_last_write(path) < before:
                for ending in ("", "-wal", "-shm", ".lock"):
                    beside(path, ending).unlink(missing_ok=True)
                number += 1
        if lock is not None:
            os.close(lock)
    return number


def _is_recorders(path: Path) -> bool:
    """Whether a recorder keeps the black box of the engine it tells of at `path`."""
    try:
        with closing(History(path)) as history:
            return box_path(path.parent, history.url) == path
    except SpecdeckError:
        return False


def _files(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Regular files of this user's with the name of a black box; when written, and their bytes."""
    try:
        paths = sorted(folder.glob(f"*{_SUFFIX}"))[:_MOST]
    except OSError:
        return
    for path in paths:
        with suppress(OSError):
            about = path.lstat()
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                continue
            size = about.st_size
            with suppress(OSError):
                size += beside(path, "-wal").lstat().st_size
            yield path, find_last_write(path), size


def _read_host(url: str) -> str | None:
    """Host and port of the URL that a file tells, whoever wrote it; None where that is no URL."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None
