"""What specdeck remembers beyond a session, in one SQLite file that processes share."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.locations import private
from specdeck.engine.store.claim import Claims

SCHEMA = 2
"""Raised when a table changes; a file with a higher one is left alone."""

PATIENCE_S = 2.0
"""How long another process may hold the file before a write gives up."""


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one engine, for the audit log."""

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


@dataclass(frozen=True, slots=True)
class Start:
    """One start of an engine that became ready."""

    t: float
    """Unix time, seconds."""
    config: str
    """See `config_key`."""
    seconds: float
    """Until it was ready."""


_ACTION = tuple(field.name for field in fields(Action))
"""The columns of an action are its fields."""


def config_key(path: Path) -> str:
    """A config's name in the store: a digest, so that the store tells nobody's folders.

    >>> config_key(Path("/a/b.yaml")) == config_key(Path("/a/../a/b.yaml"))
    True
    """
    return hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]


class Store:
    """Opens, or makes, the file at `path`; raises SpecdeckError when it cannot be used.

    A console flies on without it: what raises here is a notice there.
    """

    def __init__(self, path: Path, *, patience_s: float = PATIENCE_S) -> None:
        self._path = path
        self._claims = Claims(path)
        with self._translated():
            private(path.parent)
            # Created for its owner only; SQLite gives the same mode to what lies beside it.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            # Every statement is its own transaction.
            self._db = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
        try:
            self._prepare()
        except SpecdeckError:
            self._db.close()
            raise

    def add_action(self, action: Action) -> int:
        """Writes a change into the audit log; its entry there, for `observed`."""
        with self._translated():
            knobs = {"before": json.dumps(action.before), "after": json.dumps(action.after)}
            written = self._db.execute(
                f"INSERT INTO actions ({', '.join(_ACTION)})"
                f" VALUES ({', '.join(f':{column}' for column in _ACTION)})",
                {**asdict(action), **knobs},
            )
        return int(written.lastrowid or 0)

    def observed(self, entry: int, draft_tokens_per_draft: float) -> None:
        """Adds to a change in the audit log what was observed of it later."""
        with self._translated():
            self._db.execute(
                "UPDATE actions SET observed = ? WHERE id = ?", (draft_tokens_per_draft, entry)
            )

    def actions(self, url: str | None = None, limit: int = 100) -> tuple[Action, ...]:
        """The latest changes, the newest first; of one engine where `url` is given."""
        with self._translated():
            rows = self._db.execute(
                f"SELECT {', '.join(_ACTION)} FROM actions WHERE ?1 IS NULL OR url = ?1"
                " ORDER BY t DESC, id DESC LIMIT ?2",
                (url, limit),
            ).fetchall()
            return tuple(_action(row) for row in rows)

    def last_action(self, url: str) -> Action | None:
        """The latest change of one engine; None when there is none."""
        return next(iter(self.actions(url, 1)), None)

    def add_start(self, start: Start) -> None:
        """Remembers how long a start took."""
        with self._translated():
            self._db.execute(
                "INSERT INTO starts (t, config, seconds) VALUES (?, ?, ?)",
                (start.t, start.config, start.seconds),
            )

    def last_start(self, config: str) -> Start | None:
        """The latest start from this config; None when there is none."""
        with self._translated():
            row = self._db.execute(
                "SELECT t, config, seconds FROM starts WHERE config = ?"
                " ORDER BY t DESC, id DESC LIMIT 1",
                (config,),
            ).fetchone()
        return Start(*row) if row else None

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """The file, for several statements that hold together or not at all."""
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Lets go of the file."""
        self._claims.close()
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self) -> None:
        with self._translated():
            (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found > SCHEMA:
            raise SpecdeckError(
                f"{self._path} was written by a newer specdeck (schema {found}, this one {SCHEMA})",
                remedy="update specdeck, or set SPECDECK_HOME to another folder",
            )
        if found == SCHEMA:
            return
        schema = files("specdeck.engine.store").joinpath("schema.sql").read_text(encoding="utf-8")
        with self._translated():
            self._db.execute("PRAGMA journal_mode = WAL")
            # Two processes may both find the file new: every statement bears being repeated.
            self._db.executescript(
                f"BEGIN IMMEDIATE; {schema} PRAGMA user_version = {SCHEMA}; COMMIT;"
            )

    def claimed(self, run: int) -> bool:
        """Whether the check's `run` is this store's to go on with, until it is closed."""
        with self._translated():
            return self._claims.take(run)

    def released(self, run: int) -> None:
        """Lets go of a run that is at its end."""
        with self._translated():
            self._claims.end(run)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise SpecdeckError(
                    f"{self._path} is held by another process", remedy="try again"
                ) from error
            raise self._unusable(error) from error
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> SpecdeckError:
        return SpecdeckError(
            f"{self._path} cannot be used: {error}",
            remedy="see to the file, or move it out of the way",
        )


def _action(row: tuple[Any, ...]) -> Action:
    columns = dict(zip(_ACTION, row, strict=True))
    knobs = {name: json.loads(columns[name]) for name in ("before", "after")}
    return Action(**{**columns, **knobs})
