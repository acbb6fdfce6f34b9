"""The secret that writes need, shared by all of one engine's API server processes.

vLLM's own API key is every client's key; changing the engine is for operators only.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from specdeck.engine.protocol.messages import TOKEN_FILE_VARIABLE


def ensure_token_file(port: int, environment: MutableMapping[str, str] = os.environ) -> Path:
    """The token's file; made here when whoever started the engine named none.

    The name follows from the port, so that several API server processes of one engine
    agree on one token, and a console on the same machine finds it. Raises OSError where it
    cannot be written, RuntimeError where this user has no home.
    """
    named = environment.get(TOKEN_FILE_VARIABLE)
    if named:
        return Path(named)
    path = default_token_file(port, environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _sound(path):
        path.unlink(missing_ok=True)
    # There already: another API server of this engine, or an earlier engine at this port.
    with contextlib.suppress(FileExistsError):
        write_token(path)
    environment[TOKEN_FILE_VARIABLE] = str(path)
    return path


def _sound(path: Path) -> bool:
    """Whether a token of ours lies there that nobody else can read."""
    try:
        found = path.lstat()
    except OSError:
        return False
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
    return ours and not found.st_mode & 0o077 and found.st_size > 0


def default_token_file(port: int, environment: Mapping[str, str]) -> Path:
    """Where an engine that specdeck did not start keeps its token.

    The standard library's spelling of specdeck's state folder (engine.paths).

    >>> default_token_file(8000, {"XDG_STATE_HOME": "/s"}).as_posix()
    '/s/specdeck/tokens/port-8000'
    """
    home, state = environment.get("SPECDECK_HOME"), environment.get("XDG_STATE_HOME")
    if home:
        root = Path(home).expanduser().absolute() / "state"
    else:
        root = (Path(state) if state else Path.home() / ".local" / "state") / "specdeck"
    return root / "tokens" / f"port-{port}"


def write_token(path: Path) -> None:
    """Makes `path` with a fresh token, readable by its owner only.

    Raises FileExistsError rather than follow a link or overwrite a token in use.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))


def is_accepted(given: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `given` is the engine's admin token; False as well when there is none."""
    named = environment.get(TOKEN_FILE_VARIABLE)
    if not given or not named:
        return False
    try:
        wanted = Path(named).read_text().strip()
    except OSError:
        return False
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())
