"""Where a client finds an engine's admin token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from specdeck.engine.client.secret import Secret
from specdeck.engine.errors import UsageError
from specdeck.engine.files import read_file
from specdeck.engine.protocol.messages import TOKEN_VARIABLE

TOKEN_REMEDY = "set SPECDECK_ADMIN_TOKEN, or give --admin-token-file"
_LARGEST = 64_000
"""Bytes of a file that may hold a token."""
TokenSource = Callable[[], Secret | None]
"""Asked anew for every change, so that a token that came or went is noticed; None without.

Raises UsageError for a token that no request can carry.
"""


def no_token() -> None:
    """The source of a client that never changes anything."""
    return None


def admin_token(environment: Mapping[str, str], *files: Path | None) -> TokenSource:
    """The token from SPECDECK_ADMIN_TOKEN, or else from the first of `files` that holds one.

    >>> admin_token({"SPECDECK_ADMIN_TOKEN": "secret"})()
    Secret(…)
    >>> admin_token({}, Path("/nonexistent"), None)() is None
    True
    """

    def token() -> Secret | None:
        if given := environment.get(TOKEN_VARIABLE, "").strip():
            return Secret(given, source=f"the admin token in {TOKEN_VARIABLE}")
        return next((held for file in files if file and (held := read_token(file))), None)

    return token


def refuse_unfit(file: Path) -> None:
    """Raises UsageError for a file that was named and holds no token: another must not stand in.

    The same for one that others than its owner can read, and for a pipe or a device: what is
    read of a pipe is gone, and a token is read for every change.
    """
    if not file.exists():
        return
    if not file.is_file():
        raise UsageError(
            f"{file} is not a regular file, so no admin token is read from it",
            remedy=f"name a file, or put the token in {TOKEN_VARIABLE}",
        )
    if file.stat().st_mode & 0o077:
        raise UsageError(f"others can read the admin token in {file}", remedy=f"chmod 600 {file}")
    if read_token(file) is None:
        raise UsageError(f"{file} holds no admin token", remedy="put it there as one line of ASCII")


def read_token(file: Path) -> Secret | None:
    """The token in `file`; None where there is none."""
    try:
        # A token travels in a header: only the first line can be one.
        lines = read_file(file, most=_LARGEST).decode("ascii").split()
        return Secret(lines[0]) if lines else None
    except (OSError, ValueError, UsageError):
        return None
