"""Files read with a bound and replaced whole. The standard library only: vLLM imports it."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

ABANDONED_S = 3600.0
"""The age at which a half-written file has no writer any more."""
_OURS = re.compile(r"[0-9a-f]{16}|[0-9]+")
"""What ends the name of a half-written file: in older ones it is the writer's process id."""


def open_file(path: Path) -> io.BufferedReader:
    """A regular file to read from; the caller closes it.

    Never waits: a pipe without a writer, or a device, is refused without being read. Raises
    OSError, also for those, and ValueError for what no path can be.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_file(path: Path, *, most: int) -> bytes:
    """What a regular file of at most `most` bytes holds.

    Never waits, as `open_file`. Raises OSError, also for a larger file.
    """
    with open_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return data


def replace_file(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Writes `text` in place of `path`: a reader finds the old text or the new, whole.

    The folder has to exist. The file has the permissions `mode`, without those of the umask.
    What a killed writer of the same file has left is removed. Raises OSError, and leaves the
    old text then.
    """
    # A name that nobody foresees, and never what lies there already: in a folder that others
    # write in, a link could have been left for it.
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(partial, flags, mode)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    start = f".{path.name}."
    for other in path.parent.iterdir():
        if not (other.name.startswith(start) and _OURS.fullmatch(other.name[len(start) :])):
            continue
        with suppress(OSError):
            if time.time() - other.lstat().st_mtime > ABANDONED_S:
                other.unlink()
