"""The file of an incident: a zip, written whole, and its recording read back.

What lies in a zip that somebody sent is not trusted: its members are read within bounds, by names
of our own, and what is written of them has a name of our own.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from specdeck.engine.errors import ConfigError, Place, UsageError
from specdeck.engine.files import open_file, write_whole
from specdeck.engine.scratch import scratch_folder

RECORDING: Final = "recording.db"
PAGE: Final = "incident.md"
MANIFEST: Final = "manifest.json"
ORDER: Final = (
    PAGE, "acceptance.svg", "tokens.svg", MANIFEST, "why.json", "cohorts.json", "audit.json",
    "checks.json", "fingerprint.json", "facts.json", "state.json", "config.yaml", "engine.log",
    RECORDING,
)  # fmt: skip
"""The members, in the order in which a reader opens them."""
LARGEST: Final = 20_000_000
"""Bytes of the file."""
LARGEST_RECORDING: Final = 64_000_000
"""Bytes of a recording that is taken out of a file."""
_MOST_MEMBERS: Final = 1_000
_LARGEST_DIRECTORY: Final = 200_000
_END_MARK: Final = b"PK\x05\x06"
_END_SIZE: Final = 22
_END_REACH: Final = (1 << 16) + _END_SIZE + 20
_CHUNK: Final = 1 << 20
_UNPACKED_IN_BOUNDS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of the others, zipfile unpacks all that a chunk holds at once: gigabytes of some kilobytes."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""No time is told by the members: they are as old as their content."""


def write_archive(
    path: Path,
    members: Mapping[str, bytes | Path],
    *,
    force: bool = False,
    on_progress: Callable[[str], None] = lambda name: None,
) -> int:
    """Writes the members into one zip at `path`, for its owner only; its bytes.

    It is there whole or not at all. Raises UsageError where there is a file
    already, unless `force`, and OSError where it cannot be written.
    """
    refuse_existing(path, force=force)
    order = {name: number for number, name in enumerate(ORDER)}
    try:
        with write_whole(path, mode=0o600, over=force) as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
                for name in sorted(members, key=lambda one: (order.get(one, len(order)), one)):
                    on_progress(name)
                    _add(archive, name, members[name])
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        refuse_existing(path, force=force)
        raise
    return path.stat().st_size


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raises UsageError where something is at `path` already."""
    if not force and os.path.lexists(path):
        raise UsageError(f"{path} is there already", remedy="give another name, or --force")


def _add(archive: zipfile.ZipFile, name: str, content: bytes | Path) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.external_attr = 0o600 << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    if isinstance(content, bytes):
        archive.writestr(info, content)
        return
    info.file_size = content.stat().st_size
    with content.open("rb") as source, archive.open(info, "w") as member:
        while chunk := source.read(_CHUNK):
            member.write(chunk)


def is_archive(path: Path) -> bool:
    """Whether the file at `path` begins as a zip does; False as well for what cannot be read.

    >>> is_archive(Path("no such file"))
    False
    """
    try:
        with open_file(path) as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


@contextmanager
def extract_recording(path: Path) -> Iterator[Path]:
    """The recording in the incident file at `path`, as a file that is there for as long.

    Raises ConfigError for what is no such file, and for one with a recording beyond all bounds.
    """
    with scratch_folder("specdeck-incident") as folder:
        target = folder / RECORDING
        try:
            _extract(path, target)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise ConfigError(f"no incident file: {error}", place=Place(path)) from None
        except (RuntimeError, ValueError) as error:  # encrypted, or of an unknown kind
            raise ConfigError(f"cannot be read: {error}", place=Place(path)) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(reason, place=Place(path)) from None
        yield target


def read_member(path: Path, name: str, largest: int) -> bytes | None:
    """The member `name` of the incident file at `path`; None where there is none, or where it has
    more than `largest` bytes or is not stored as ours are.

    Raises ConfigError for what is no incident file.
    """
    try:
        if path.stat().st_size > LARGEST_RECORDING:
            return None
        _check_directory(path)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            found = [one for one in members if one.filename == name]
            if len(members) > _MOST_MEMBERS or len(found) != 1:
                return None
            if found[0].file_size > largest or found[0].compress_type not in _UNPACKED_IN_BOUNDS:
                return None
            with archive.open(found[0]) as source:
                data = source.read(largest + 1)  # whatever its header says
                return None if len(data) > largest else data
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
            ValueError, OSError) as error:  # fmt: skip
        raise ConfigError(f"cannot be read: {error}", place=Place(path)) from None


def _check_directory(path: Path) -> None:
    """Raises ConfigError for a list of members that is longer than ours, before it is read.

    The two places are those where zipfile looks for its end; one of more than 4 GB is none of ours.
    """
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_REACH))
        tail = file.read(_END_REACH)
    at = len(tail) - _END_SIZE
    if not (tail[at : at + 4] == _END_MARK and tail[-2:] == b"\0\0"):
        at = tail.rfind(_END_MARK)
    if at < 0 or len(tail) < at + _END_SIZE:
        raise ConfigError("no incident file: not a zip", place=Place(path))
    (directory,) = struct.unpack_from("<I", tail, at + 12)
    if directory > _LARGEST_DIRECTORY or tail[max(0, at - 20) :][:4] == b"PK\x06\x07":
        raise ConfigError("too many members for an incident file", place=Place(path))


def _extract(path: Path, target: Path) -> None:
    if path.stat().st_size > LARGEST_RECORDING:
        raise ConfigError("too large for an incident file", place=Place(path))
    _check_directory(path)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise ConfigError("too many members for an incident file", place=Place(path))
        found = [one for one in members if one.filename == RECORDING]
        if not found:
            raise ConfigError(
                f"no {RECORDING} in it: nothing was recorded, or it is no incident file",
                place=Place(path),
            )
        if len(found) > 1 or found[0].file_size > LARGEST_RECORDING:
            raise ConfigError("its recording is beyond all bounds", place=Place(path))
        if found[0].compress_type not in _UNPACKED_IN_BOUNDS:
            raise ConfigError("compressed as no incident file is", place=Place(path))
        size = 0
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with archive.open(found[0]) as source, os.fdopen(descriptor, "wb") as file:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > LARGEST_RECORDING:  # whatever its header says
                    raise ConfigError("its recording is beyond all bounds", place=Place(path))
                file.write(chunk)
