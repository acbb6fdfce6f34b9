"""How long engines took to start, so that the next start of a config can show its progress."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from specdeck.engine.store.database import Store


@dataclass(frozen=True, slots=True)
class Start:
    """One start of an engine that became ready."""

    t: float
    """Unix time, seconds."""
    config: str
    """See `config_key`."""
    seconds: float
    """Until it was ready."""


def config_key(path: Path) -> str:
    """A config's name in the store: a digest, so that the store tells nobody's folders.

    >>> config_key(Path("/a/b.yaml")) == config_key(Path("/a/../a/b.yaml"))
    True
    """
    return hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]


class Starts:
    """The starts in a store; every method raises SpecdeckError when the file cannot be used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, start: Start) -> None:
        """Remembers how long a start took."""
        with self._store.transaction() as db:
            db.execute(
                "INSERT INTO starts (t, config, seconds) VALUES (?, ?, ?)",
                (start.t, start.config, start.seconds),
            )

    def last(self, config: str) -> Start | None:
        """The latest start from this config; None when there is none."""
        with self._store.transaction(write=False) as db:
            row = db.execute(
                "SELECT t, config, seconds FROM starts WHERE config = ?"
                " ORDER BY t DESC, id DESC LIMIT 1",
                (config,),
            ).fetchone()
        return Start(*row) if row else None
