"""`specdeck set URL --history`: the audit log of an engine."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.cli.engines import access
from specdeck.console.cli.memory import past_changes
from specdeck.console.cli.talk import emit, say, table

if TYPE_CHECKING:
    from specdeck.engine.store.audit import Action

SHOWN = 50
HEAD = ("TIME (UTC)", "WHO", "CHANGE", "OBSERVED", "REASON", "UNDO")


def shown(engine: str, *, as_json: bool) -> int:
    """Prints the changes that were made from here, the newest first; the engine need not run."""
    url = access(engine).url
    found = past_changes(url, SHOWN)
    if as_json:
        emit([_as_json(action) for action in found])
    elif found:
        click.echo(table(HEAD, map(cells, found)))
    else:
        say(f"specdeck: no change of {url} was made from here")
    return 0


def cells(action: Action) -> tuple[str, ...]:
    """A change for reading, as HEAD names it."""
    return (
        f"{datetime.fromtimestamp(action.t, UTC):%Y-%m-%d %H:%M:%S}",
        action.who or "–",
        changed(action.before, action.after),
        "–" if action.observed is None else f"{action.observed:.2f}",
        action.reason or "–",
        action.undo,
    )


def changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What moved, and from where.

    >>> changed({"k": 8, "policy": "goodput"}, {"k": 3, "policy": "fixed"})
    'k 8 → 3, policy goodput → fixed'
    >>> changed({"k": 3}, {"k": 3})
    'k 3'
    """
    words = []
    for name, value in after.items():
        was = before.get(name)
        words.append(
            f"{name} {_text(value)}" if was == value else f"{name} {_text(was)} → {_text(value)}"
        )
    return ", ".join(words) or "–"


def _text(value: object) -> str:
    return "–" if value is None else str(value)


def _as_json(action: Action) -> dict[str, Any]:
    found = asdict(action)
    return {**found, "observed_k": found.pop("observed")}
