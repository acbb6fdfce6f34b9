"""The one spelling of facts, and digests of large files, remembered while these do not change.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdeck.engine.files import open_file, read_file, replace_file
from specdeck.engine.protocol.codec import loads

CHUNK = 1 << 20
"""Bytes held at a time: it stays in a core's own cache between reading and hashing."""

SETTLED_S = 2.0
"""A file younger than this may change again within one tick of its file system's clock."""

_KEPT = 4096
"""Digests remembered at most."""

_LARGEST = 32_000_000
"""Bytes of a file that remembers them: each with a path."""

Read = Callable[[int], None]
"""Told the bytes read since the last call."""


class FileChanged(OSError):
    """The file was written while it was read."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a file system knows of a file's content without reading it."""

    path: str
    size: int
    modified: int
    """Nanoseconds. A program may set it to what it likes; `changed` it cannot."""
    changed: int
    inode: int
    device: int

    @classmethod
    def of(cls, path: Path) -> Signature:
        """The file's, links followed; raises OSError."""
        real = path.resolve(strict=True)
        found = real.stat()
        return cls(
            str(real),
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_ino,
            found.st_dev,
        )

    def key(self) -> str:
        """Under which the digest is remembered."""
        return "|".join(
            map(str, (self.size, self.modified, self.changed, self.inode, self.device, self.path))
        )


def sha256(path: Path, read: Read = lambda _: None) -> str:
    """The SHA-256 of a file's content, in hexadecimal; raises OSError."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK))
    with open_file(path) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            read(count)
    return digest.hexdigest()


class Digests:
    """SHA-256 digests of files, and the cache that spares reading them again."""

    def __init__(self, cache: Path | None, *, wall: Callable[[], float] = time.time) -> None:
        self._cache = cache
        self._wall = wall
        self._known = _load(cache) if cache else {}
        self._fresh: dict[str, str] = {}

    def find(self, signature: Signature) -> str | None:
        """The remembered digest; None when the file must be read."""
        return self._known.get(signature.key())

    def of(self, path: Path, read: Read = lambda _: None) -> str:
        """The digest of a file; raises OSError, and FileChanged for one that is being written."""
        before = Signature.of(path)
        if (known := self.find(before)) is not None:
            read(before.size)
            return known
        found = sha256(path, read)
        if Signature.of(path) != before:
            raise FileChanged(f"{path.name} was written while it was read")
        if self._wall() - max(before.modified, before.changed) / 1e9 > SETTLED_S:
            self._fresh[before.key()] = found
        return found

    def save(self) -> None:
        """Remembers what was read; a cache that cannot be written is done without."""
        if self._cache is None or not self._fresh:
            return
        # Another engine may have written since: its digests are kept.
        merged = {**_load(self._cache), **self._fresh}
        kept = dict(list(merged.items())[-_KEPT:])
        with suppress(OSError):
            self._cache.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._cache, json.dumps(kept))


def _load(cache: Path) -> dict[str, str]:
    try:
        found: Any = loads(read_file(cache, most=_LARGEST))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str) and len(v) == 64}


def total_size(paths: Iterable[Path]) -> int:
    """Bytes of the files that can be looked at."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def canonical(facts: Mapping[str, Any]) -> bytes:
    """The one spelling of `facts`: sorted keys, no spaces, UTF-8.

    What UTF-8 has no spelling for, half of a surrogate pair, is escaped as JSON does it.

    >>> canonical({"b": 1, "a": [2, None]})
    b'{"a":[2,null],"b":1}'
    """
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def checksum(body: Mapping[str, Any]) -> str:
    """16 digits of everything in a pin or baseline but the checksum itself."""
    kept = {name: value for name, value in body.items() if name != "checksum"}
    return hashlib.sha256(canonical(kept)).hexdigest()[:16]


def cache_file(environment: Mapping[str, str]) -> Path:
    """Where digests are remembered: specdeck's cache folder in the standard library's words.

    >>> cache_file({"XDG_CACHE_HOME": "/c"}).as_posix()
    '/c/specdeck/digests.json'
    """
    if home := environment.get("SPECDECK_HOME"):
        return Path(os.path.abspath(Path(home).expanduser())) / "cache" / "digests.json"
    given = environment.get("XDG_CACHE_HOME")
    root = Path(given) if given else Path.home() / ".cache"
    return root / "specdeck" / "digests.json"
