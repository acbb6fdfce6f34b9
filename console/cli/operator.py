"""Who makes a change, for the engine and the audit log."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping

_LONGEST = 200
"""Characters; the environment holds anything."""


def find_operator(environment: Mapping[str, str] = os.environ) -> str:
    """Who asks, for the audit log: the login, and where it comes from over SSH.

    >>> find_operator({"LOGNAME": "mira", "SSH_CONNECTION": "10.0.0.7 51 10.0.0.1 22"})
    'mira from 10.0.0.7'
    """
    host = environment.get("SSH_CONNECTION", "").partition(" ")[0]
    name = environment.get("LOGNAME") or environment.get("USER") or _find_login()
    return _make_sendable(f"{name} from {host}" if host else name)


def _make_sendable(name: str) -> str:
    r"""`name` as text that every request and every file takes; its bytes may be of any encoding.

    >>> _make_sendable("j\udcf6rg\x1b[0m").encode("ascii", "backslashreplace")
    b'j\\ufffdrg\\ufffd[0m'
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)[:_LONGEST]


def _find_login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in a container
        return f"uid {os.getuid()}"
