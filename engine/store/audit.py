"""The audit log: who changed what on which engine, and how to take it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from specdeck.engine.protocol.codec import UnixTime, read_object, read_value

if TYPE_CHECKING:
    from specdeck.engine.store.database import Store


Outcome = Literal["applied", "unknown", "not made"]
"""What came of a change: the engine's word, that nobody heard it, or that it is not in force by the
engine's own state or counters, whatever it said."""

OUTCOMES: Mapping[str, str] = {"unknown": "outcome unknown", "not made": "NOT made"}
"""For reading; one that is applied goes without saying."""


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one engine."""

    t: float
    """Unix time, seconds."""
    who: str
    url: str
    engine: str
    """What people call it."""
    before: dict[str, Any]
    after: dict[str, Any]
    undo: str
    """The command that takes it back."""
    instance: str | None = None
    """The start of the engine that was changed."""
    reason: str | None = None
    observed: float | None = None
    """Draft tokens per draft after the change; None when it was not observed."""
    origin: str | None = None
    """Where it came from, as `protocol.Origin` has it; None of an entry that does not tell."""
    outcome: Outcome = "applied"
    """`unknown` where it was asked for, and whoever asked has not learnt what came of it; `not
    made` also where a restart has forgotten it."""


_COLUMNS = tuple(field.name for field in fields(Action))
"""The columns of an action are its fields."""


class AuditLog:
    """The changes in a store; every method raises SpecdeckError when the file cannot be used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, action: Action) -> int:
        """Writes a change; the number of its entry, for `set_observed`."""
        with self._store.transaction() as db:
            written = db.execute(
                f"INSERT INTO actions ({', '.join(_COLUMNS)})"
                f" VALUES ({', '.join(f':{column}' for column in _COLUMNS)})",
                _as_row(action),
            )
        return int(written.lastrowid or 0)

    def replace(self, entry: int, action: Action) -> None:
        """Writes what has come of a change in the place of what was asked for."""
        with self._store.transaction() as db:
            db.execute(
                f"UPDATE actions SET {', '.join(f'{column} = :{column}' for column in _COLUMNS)}"
                " WHERE id = :id",
                {**_as_row(action), "id": entry},
            )

    def remove(self, entry: int) -> None:
        """Takes out a change that was asked for and has not been made."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM actions WHERE id = ?", (entry,))

    def set_observed(self, entry: int, draft_tokens_per_draft: float) -> None:
        """Adds to an entry what the counters showed after the change."""
        with self._store.transaction() as db:
            db.execute(
                "UPDATE actions SET observed = ? WHERE id = ?", (draft_tokens_per_draft, entry)
            )

    def set_outcome(self, entry: int, outcome: Outcome) -> None:
        """Writes what has come of a change beside what the engine said of it."""
        with self._store.transaction() as db:
            db.execute("UPDATE actions SET outcome = ? WHERE id = ?", (outcome, entry))

    def actions(self, url: str | None = None, limit: int = 100) -> tuple[Action, ...]:
        """The latest changes, the newest first; of one engine where `url` is given.

        One that cannot be read is left out, as the store's `left_out` says.
        """
        with self._store.transaction(write=False) as db:
            rows = db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM actions WHERE ?1 IS NULL OR url = ?1"
                " ORDER BY t DESC, id DESC",
                (url,),
            )
            return self._store.read_rows(rows, _action, what="change", limit=limit)


def _as_row(action: Action) -> dict[str, Any]:
    knobs = {"before": json.dumps(action.before), "after": json.dumps(action.after)}
    return {**asdict(action), **knobs}


def _action(row: tuple[Any, ...]) -> Action:
    columns = dict(zip(_COLUMNS, row, strict=True))
    knobs = {name: read_object(columns[name]) for name in ("before", "after")}
    read_value(UnixTime, columns["t"], "a time in it")
    return Action(**{**columns, **knobs})
