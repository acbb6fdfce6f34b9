"""Digests of Python packages as they lie on disk: one that was edited has the version it had.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from specdeck.engine.fingerprint.digest import Read, sha256


def list_code(place: Path) -> list[Path]:
    """A module's own file, or all Python files in a package's folder; sorted."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*.py") if path.is_file())


def digest_code(place: Path, read: Read = lambda _: None) -> str:
    """Of a module's file; of a package's folder, by all its Python files and their places in it.

    `read` is called with how many bytes more have been read. Raises OSError for a file that cannot
    be read.
    """
    if not place.is_dir():
        return sha256(place, read)
    digest = hashlib.sha256()
    for path in list_code(place):
        digest.update(f"{path.relative_to(place).as_posix()}\0{sha256(path, read)}\n".encode())
    return digest.hexdigest()
