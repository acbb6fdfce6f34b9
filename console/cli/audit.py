"""The audit log in the user's store: what was changed from here, and `specdeck set --history`."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from specdeck.console.cli.common import open_user_store
from specdeck.console.cli.engines import access
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.engine.store.audit import OUTCOMES, Action, AuditLog, Outcome
from specdeck.engine.text import UNKNOWN, format_changes, format_table, oneline

LISTED = 50
_NAMES = 12
"""Columns of what a line of a change is about."""
HEAD = ("TIME (UTC)", "WHO", "CHANGE", "OBSERVED", "REASON", "UNDO")


class UserAudit:
    """Writes into the user's audit log; the store is open only while something is written.

    Every method raises SpecdeckError when it cannot be used.
    """

    def add(self, action: Action) -> int:
        """Writes a change; the number of its entry, for `set_observed`."""
        with open_user_store() as store:
            return AuditLog(store).add(action)

    def replace(self, entry: int, action: Action) -> None:
        """Writes what has come of a change in the place of what was asked for."""
        with open_user_store() as store:
            AuditLog(store).replace(entry, action)

    def remove(self, entry: int) -> None:
        """Takes out a change that was asked for and has not been made."""
        with open_user_store() as store:
            AuditLog(store).remove(entry)

    def set_observed(self, entry: int, draft_tokens_per_draft: float) -> None:
        """Adds to an entry what the counters showed after the change."""
        with open_user_store() as store:
            AuditLog(store).set_observed(entry, draft_tokens_per_draft)

    def set_outcome(self, entry: int, outcome: Outcome) -> None:
        """Writes what has come of a change beside what the engine said of it."""
        with open_user_store() as store:
            AuditLog(store).set_outcome(entry, outcome)


def print_history(engine: str, *, as_json: bool) -> int:
    """Prints the changes that were made from here, the newest first; the engine need not run.

    Raises SpecdeckError without a store.
    """
    url = access(engine).url
    with open_user_store() as store:
        found = AuditLog(store).actions(url, LISTED)
        left_out = store.left_out
    for line in left_out:
        log(f"specdeck: {line}")
    if as_json:
        emit([as_data(action) for action in found])
    elif found:
        print_lines(*history_lines(found, _terminal_columns()))
    elif not left_out:
        log(f"specdeck: no change of {url} was made from here")
    return 0


def _terminal_columns() -> int | None:
    """Columns of the terminal that is printed on; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def history_lines(actions: Sequence[Action], columns: int | None) -> list[str]:
    """A table of changes, or some lines for each where the table is wider than `columns`.

    >>> action = Action(0.0, "ann", "http://e:1", "e", {"k": 5}, {"k": 3}, "specdeck set e k=5")
    >>> print(*history_lines([action], 40), sep="\\n")
    1970-01-01 00:00:00 UTC  ann
      change    k 5 → 3
      undo      specdeck set e k=5
    """
    rows = [format_cells(action) for action in actions]
    table = format_table(HEAD, rows)
    if columns is None or max(map(len, table)) <= columns:
        return table
    lines = []
    for when, who, *facts in rows:
        lines.append(f"{when} UTC  {who}")
        for name, fact in zip(HEAD[2:], facts, strict=True):
            if fact == UNKNOWN:
                continue
            room = max(columns - _NAMES, _NAMES)
            first, *rest = textwrap.wrap(oneline(fact), room, break_on_hyphens=False) or [""]
            if name == "UNDO":  # on one line, so that it can be copied
                first, rest = oneline(fact), []
            lines.append(f"  {name.lower():<{_NAMES - 2}}{first}")
            lines += [" " * _NAMES + more for more in rest]
    return lines


def as_data(action: Action) -> dict[str, Any]:
    """An entry as `set --history --json` prints it."""
    found = asdict(action)
    return {**found, "observed_k": found.pop("observed")}


def _describe_change(action: Action) -> str:
    changes = format_changes(action.before, action.after) or UNKNOWN
    outcome = OUTCOMES.get(action.outcome)
    return changes if outcome is None else f"{changes} ({outcome})"


def format_cells(action: Action) -> tuple[str, ...]:
    """A change for reading, as HEAD names it."""
    return (
        f"{datetime.fromtimestamp(action.t, UTC):%Y-%m-%d %H:%M:%S}",
        action.who or UNKNOWN,
        _describe_change(action),
        UNKNOWN if action.observed is None else f"{action.observed:.2f}",
        action.reason or UNKNOWN,
        action.undo or UNKNOWN,
    )
