"""The person at the console: who it is, and what they chose once and for all."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.engine.paths import locations

if TYPE_CHECKING:
    from specdeck.console.settings import Settings


def operator(environment: Mapping[str, str] = os.environ) -> str:
    """Who asks, for the audit log: the login, and where it comes from over SSH.

    >>> operator({"LOGNAME": "mira", "SSH_CONNECTION": "10.0.0.7 51 10.0.0.1 22"})
    'mira from 10.0.0.7'
    """
    host = environment.get("SSH_CONNECTION", "").partition(" ")[0]
    name = environment.get("LOGNAME") or environment.get("USER") or _login()
    return f"{name} from {host}" if host else name


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in a container
        return f"uid {os.getuid()}"


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """The user's settings; raises ConfigError for a file that cannot be used."""
    from specdeck.console import keys
    from specdeck.console.settings import read

    path = locations(environment).config / "settings.yaml"
    return read(path, keys.ids())


def themes(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The folders of the user's own themes."""
    return (locations(environment).config / "themes",)
