"""The secret that writes need, shared by all of one engine's API server processes.

vLLM's own API key is every client's key; changing the engine is for operators only.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import multiprocessing
import os
import secrets
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from specdeck.engine.files import make_private, read_file
from specdeck.engine.protocol.messages import TOKEN_FILE_VARIABLE

_LARGEST = 64_000
"""Bytes of a file that may hold a token."""


def ensure_token_file(port: int, environment: MutableMapping[str, str] = os.environ) -> Path:
    """The token's file; made here when whoever started the engine named none.

    The name follows from the port, so that several API server processes of one engine
    agree on one token, and a console on the same machine finds it. An earlier engine's token
    at this port is replaced. Raises OSError where it cannot be written, or where others can
    read the file that was named, RuntimeError where this user has no home.
    """
    named = environment.get(TOKEN_FILE_VARIABLE)
    if named:
        path = Path(named)
        if path.exists() and is_open(path.stat().st_mode):
            raise PermissionError(f"others can read {path}, which must have mode 600")
        return path
    path, life = default_token_file(port, environment), _name_life()
    make_private(path.parent)
    if not _is_sound(path, life):
        path.unlink(missing_ok=True)
    # There already: another API server of this engine.
    with contextlib.suppress(FileExistsError):
        write_token(path, life=life)
    environment[TOKEN_FILE_VARIABLE] = str(path)
    return path


def is_open(mode: int) -> bool:
    """Whether a file with this mode can be read or written by others than its owner.

    >>> is_open(0o100600), is_open(0o100640), is_open(0o100602)
    (False, True, True)
    """
    return bool(stat.S_IMODE(mode) & 0o077)


def _is_sound(path: Path, life: str) -> bool:
    """Whether a token of this life of the engine lies there that nobody else can read."""
    try:
        found = path.lstat()
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        return ours and not is_open(found.st_mode) and _read(path).startswith(f"{life}.")
    except (OSError, ValueError):
        return False


def _name_life() -> str:
    """A name that all API servers of one engine share, and no later engine has.

    vLLM starts several of them as children of the process that was started first.
    """
    parent = multiprocessing.parent_process()
    pid = os.getpid() if parent is None else parent.pid
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The name, in brackets, may hold anything; the start is the 20th field behind it.
        born = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, ValueError, IndexError):
        boot = born = ""
    return hashlib.sha256(f"{boot} {pid} {born}".encode()).hexdigest()[:12]


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
        # A relative one counts for nothing: it would name another folder in every working folder.
        named = Path(state or "")
        root = (named if named.is_absolute() else Path.home() / ".local" / "state") / "specdeck"
    return root / "tokens" / f"port-{port}"


def write_token(path: Path, *, life: str | None = None) -> None:
    """Makes `path` with a fresh token, readable by its owner only.

    The token begins with the `life` of the engine, if one is given.

    Raises FileExistsError rather than follow a link or overwrite a token in use, and OSError, with
    the file's name, where there is no room for it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(("" if life is None else f"{life}.") + secrets.token_urlsafe(32))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def is_accepted(given: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `given` is the engine's admin token.

    False as well when there is none, and while others can read its file.
    """
    named = environment.get(TOKEN_FILE_VARIABLE)
    if not given or not named:
        return False
    try:
        path = Path(named)
        if is_open(path.stat().st_mode):
            return False
        wanted = _read(path).strip()
    except (OSError, ValueError):
        return False
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())


def _read(path: Path) -> str:
    return read_file(path, most=_LARGEST).decode()
