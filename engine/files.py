"""Files read with a bound and replaced whole. The standard library only: vLLM imports it."""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

ABANDONED_S = 3600.0
"""The age at which a half-written file has no writer any more."""


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
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(
            partial, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)
        ) as file:
            file.write(text)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    for other in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > ABANDONED_S:
                other.unlink()
