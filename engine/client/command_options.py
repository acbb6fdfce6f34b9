"""What a command has to add for an engine: where its key and its admin token lie, never they
themselves.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOKEN_STAND_IN: Final = "TOKEN_FILE"
"""Stands where nobody knows the file of the token: pasted, it says what is missing."""


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Options for commands that look at an engine, and for those that change it."""

    reading: Sequence[str] = ()
    steering: Sequence[str] = ()

    def read(self, url: str) -> str:
        """The engine as a command that looks at it has it, for a shell."""
        return shlex.join([url, *self.reading])

    def steer(self, url: str) -> str:
        """The same for a command that changes it.

        >>> CommandOptions(steering=("--admin-token-file", "/a b")).steer("http://h")
        "http://h --admin-token-file '/a b'"
        """
        return shlex.join([url, *self.steering])


NO_OPTIONS: Final = CommandOptions()


def list_options(
    key_variable: str | None, token_file: Path | None, *, has_token: bool
) -> CommandOptions:
    """The options of an engine; `has_token` is whether its token is found without any.

    >>> list_options("KEY", None, has_token=True).steering
    ('--api-key-env', 'KEY')
    >>> list_options(None, None, has_token=False).steering
    ('--admin-token-file', 'TOKEN_FILE')
    """
    reading = () if key_variable is None else ("--api-key-env", key_variable)
    if token_file is not None:
        return CommandOptions(reading, (*reading, "--admin-token-file", str(token_file.absolute())))
    missing = () if has_token else ("--admin-token-file", TOKEN_STAND_IN)
    return CommandOptions(reading, (*reading, *missing))
