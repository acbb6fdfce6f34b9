"""The versions of vLLM whose engines can be changed; older ones are only watched."""

from __future__ import annotations

import re
from typing import Final

OLDEST: Final = (0, 32)
"""The first whose engine client can ask every engine core, which every change goes through."""
BELOW: Final = (0, 34)
"""The first that was not looked at."""
REMEDY: Final = "use vLLM 0.32 or 0.33"

_RELEASE = re.compile(r"v?(\d+)\.(\d+)")


def is_too_old(version: str | None) -> bool:
    """Whether engines of this version can only be watched; not so where it is unknown.

    >>> is_too_old("0.31.0"), is_too_old("0.32.0+cpu"), is_too_old("dev"), is_too_old(None)
    (True, False, False, False)
    """
    found = _RELEASE.match(version or "")
    return found is not None and (int(found[1]), int(found[2])) < OLDEST


def describe_too_old(version: str | None) -> str:
    """Why an engine of this version is only watched.

    >>> describe_too_old("0.31.0")
    'vLLM 0.31.0 can only be watched: its engine cores cannot be asked before 0.32'
    """
    return (
        f"vLLM {version} can only be watched: its engine cores cannot be asked before "
        f"{OLDEST[0]}.{OLDEST[1]}"
    )
