"""How a command speaks: data on stdout, everything else on stderr, and its exit code."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import click

INTERRUPTED = 130
"""The exit code of a command that a signal has ended."""

_HAS_DATA = "specdeck.has_data"


def emit(data: object) -> None:
    """One JSON value on one line, at once, so that a pipe sees it when it happens."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False) + "\n")
    sys.stdout.flush()
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_HAS_DATA] = True


def has_data(context: click.Context) -> bool:
    """Whether the command of `context` has emitted anything."""
    return bool(context.meta.get(_HAS_DATA))


def log(text: str) -> None:
    """A line for the person; a terminal that has gone away is no reason to fail."""
    with suppress(OSError):
        click.echo(text, err=True)
