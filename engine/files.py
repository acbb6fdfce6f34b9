"""Files read with a bound and written whole. The standard library only: vLLM imports it."""

from __future__ import annotations

import errno
import io
import os
import re
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

ABANDONED_S = 3600.0
"""The age at which a half-written file has no writer any more."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Of an OSError: the disk, or this user's part of it, is full."""
STREAM_S = 5.0
"""For whoever reads a pipe, to take what is written to it."""
_OURS = re.compile(r"[0-9a-f]{16}")
"""What ends the name of a half-written file. A number alone ends that of many a backup."""
_LONGEST_START = 200
"""Bytes of a file's name within that of its half-written one; file systems take 255, few fewer."""


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


def is_kernels(path: Path) -> bool:
    """Whether `path` leads to a file that the kernel makes up: it calls those regular, too, and
    has some of their readers wait for good, deaf to signals."""
    return os.path.realpath(path).startswith(("/proc/", "/sys/"))


def read_file(path: Path, *, most: int, own: bool = False) -> bytes:
    """What a regular file of at most `most` bytes holds; an `own` one has to be this user's.

    Never waits, as `open_file`. Raises OSError, also for a larger file.
    """
    with open_file(path) as file:
        if own and os.fstat(file.fileno()).st_uid != os.geteuid():
            raise OSError(errno.EPERM, "another user's file", str(path))
        data: bytes | None = file.read(most + 1)
    if data is None:  # of the kernel's, which has nothing to read yet
        raise OSError(errno.EINVAL, "not a file with an end", str(path))
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return data


def open_lock(path: Path) -> int:
    """A file of this user's own, to take a lock on; made where there is none, closed by the caller.

    Never waits, and follows no link. Raises OSError, also for what another user could have left
    there: that one could hold the lock for ever, or have another file marked.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    refuse_foreign(path)  # looked at first: a pipe or a device is not even opened
    descriptor = os.open(path, flags, 0o600)
    try:
        refuse_foreign(path, about := os.fstat(descriptor))
        if about.st_mode & 0o044:  # who can read it can lock it
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_foreign(path: Path, about: os.stat_result | None = None) -> os.stat_result | None:
    """Raises OSError unless a file to write to and to lock is this user's alone: of one name, so
    that no other is written with it, and closed to others.

    Its group may write to it where its mode says so, which nothing of ours does: a volume that is
    given to a group of its own has such modes.

    Goes by `about` or by what lies at `path`, which is the answer; None where nothing does.
    """
    if about is None:
        try:
            about = path.lstat()
        except FileNotFoundError:
            return None
    if stat.S_ISLNK(about.st_mode):
        fault = "a link"
    elif not stat.S_ISREG(about.st_mode):
        fault = "not a regular file"
    elif about.st_uid != os.geteuid():
        fault = "another user's file"
    elif about.st_nlink > 1:
        fault = "a file with another name"
    elif about.st_mode & stat.S_IWOTH:
        fault = "a file that others can write"
    else:
        return about
    raise OSError(errno.EPERM, fault, str(path))


@contextmanager
def write_whole(path: Path, *, mode: int = 0o666, over: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that is at `path` whole when this ends, and not at all where it fails.

    The folder has to exist. The file has the permissions `mode`, without those of the umask, and
    none that the file in whose place it comes does not have: who made that private meant it. What a
    killed writer of the same file has left is removed. Raises OSError, also for a device or a
    pipe at `path`, and FileExistsError where something has come there meanwhile, unless it is to be
    written `over`.
    """
    # A name that nobody foresees, and never what lies there already: in a folder that others
    # write in, a link could have been left for it.
    _refuse_special(path)
    partial = path.with_name(f"{_partial_start(path)}{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(partial, flags, mode & _permissions(path))
    except OSError as error:
        error.filename = str(path)  # nobody knows the other name
        raise
    try:
        with open(descriptor, "wb") as file:
            yield file
        if over:
            partial.replace(path)
        else:
            _move_beside(partial, path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
            error.filename = str(path)  # the system does not say which file it has none for
        raise
    _remove_abandoned(path)


def _permissions(path: Path) -> int:
    """Those of what is at `path`; all where there is nothing."""
    try:
        return stat.S_IMODE(path.stat().st_mode)  # of a link, what it leads to
    except OSError:
        return 0o777


def _partial_start(path: Path) -> str:
    """What the names of half-written files of `path` begin with: any name that the file system
    takes for the file leaves room for theirs.

    >>> _partial_start(Path("out/a.zip")), len(_partial_start(Path("n" * 255)))
    ('.a.zip.', 202)
    """
    return f".{os.fsdecode(os.fsencode(path.name)[:_LONGEST_START])}."


def _refuse_special(path: Path) -> None:
    """Raises OSError for what a file must not take the place of.

    Root's `/dev/null` and `/dev/stdout` would be a file from then on, for everybody.
    """
    if not path.name:  # `.`, as which an empty text counts too, and `/`
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        mode = path.stat().st_mode
        is_stream = path.is_symlink() and os.readlink(path).startswith("/proc/")
    except OSError:  # nothing, or a link to nothing
        return
    if is_stream or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # of a folder a rename tells
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def _move_beside(partial: Path, path: Path) -> None:
    """Never over what is there; raises FileExistsError then."""
    try:
        os.link(partial, path)  # unlike a rename
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "there already", str(path)) from None
        partial.replace(path)
        return
    partial.unlink()


def _remove_abandoned(path: Path) -> None:
    """What killed writers of the same file have left, where the folder can be looked into."""
    start = _partial_start(path)
    with suppress(OSError):
        for other in path.parent.iterdir():
            if not (other.name.startswith(start) and _OURS.fullmatch(other.name[len(start) :])):
                continue
            with suppress(OSError):
                about = other.lstat()
                is_ours = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid()
                if is_ours and time.time() - about.st_mtime > ABANDONED_S:
                    other.unlink()


def write_stream(path: Path, text: str) -> None:
    """Writes `text` to the pipe or the character device at `path`, which somebody has to read.

    Raises OSError for another kind of file, where nobody reads, and where what is written is not
    taken within `STREAM_S`.
    """
    until = time.monotonic() + STREAM_S
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "nobody reads it", str(path)) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            raise OSError(errno.EINVAL, "not a file, a pipe or a terminal", str(path))
        ready, data = select.poll(), text.encode("utf-8")
        ready.register(descriptor, select.POLLOUT)
        while data:
            if not ready.poll(max(0.0, until - time.monotonic()) * 1e3):
                raise OSError(errno.ETIMEDOUT, "nobody reads it", str(path))
            with suppress(BlockingIOError):
                data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    """Makes `folder`, with all that it lies in and that is not there, for its owner only.

    Whatever the umask: who can write in a folder can put another in the place of what lies in it.
    Raises OSError.
    """
    missing, above = [], folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True, mode=0o700)
    if not missing:
        folder.mkdir(exist_ok=True)


def replace_file(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Writes `text` in place of `path`: a reader finds the old text or the new, whole.

    As `write_whole`. Raises OSError, and leaves the old text then.
    """
    with write_whole(path, mode=mode) as file:
        file.write(text.encode("utf-8"))
