"""Digests of Python packages as they lie on disk: one that was edited has the version it had.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from specdeck.engine.fingerprint.digest import sha256


def digest_code(place: Path) -> str:
    """Of a module's file; of a package's folder, by all its Python files and their places in it.

    Raises OSError for a file that cannot be read.
    """
    if not place.is_dir():
        return sha256(place)
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*.py")):
        if path.is_file():
            digest.update(f"{path.relative_to(place).as_posix()}\0{sha256(path)}\n".encode())
    return digest.hexdigest()
