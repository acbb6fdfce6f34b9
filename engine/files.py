"""Files that are replaced whole. The standard library only: vLLM's processes import it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

ABANDONED_S = 3600.0
"""The age at which a half-written file has no writer any more."""


def replace_file(path: Path, text: str) -> None:
    """Writes `text` in place of `path`: a reader finds the old text or the new, whole.

    The folder has to exist. What a killed writer of the same file has left is removed.
    Raises OSError, and leaves the old text then.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    for other in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > ABANDONED_S:
                other.unlink()
