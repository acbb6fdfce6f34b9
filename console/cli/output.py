"""How a command speaks: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import click

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


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell.

    >>> print(format_table(("NAME", "K"), [("demo", "5"), ("a", "–")]))
    NAME  K
    demo  5
    a     –
    """
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def format_duration(seconds: float) -> str:
    """How long, in its two largest units.

    >>> format_duration(42), format_duration(3700), format_duration(200_000)
    ('42 s', '1 h 01 min', '2 d 07 h')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours == 0:
        return f"{minutes} min {whole % 60:02} s"
    return f"{hours} h {minutes % 60:02} min" if days == 0 else f"{days} d {hours % 24:02} h"
