"""Who makes a change, for the engine and the audit log."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping

from specdeck.engine.text import printable

_LONGEST = 200
"""Characters; the environment holds anything."""


def find_operator(environment: Mapping[str, str] = os.environ) -> str:
    r"""Who asks, for the audit log: the login, and where it comes from over SSH.

    >>> find_operator({"LOGNAME": "mira", "SSH_CONNECTION": "10.0.0.7 51 10.0.0.1 22"})
    'mira from 10.0.0.7'
    >>> find_operator({"USER": "j\udcf6rg\x1b[0m"}).encode("ascii", "backslashreplace")
    b'j\\ufffdrg\\ufffd[0m'
    """
    host = environment.get("SSH_CONNECTION", "").partition(" ")[0]
    login = environment.get("LOGNAME") or environment.get("USER") or _find_login()
    name = f"{login} from {host}" if host else login
    # Its bytes may be of any encoding: every request and every file must take the text.
    sendable = printable(name, lambda character: "\N{REPLACEMENT CHARACTER}")
    return sendable[:_LONGEST]


def _find_login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in a container
        return f"uid {os.getuid()}"
