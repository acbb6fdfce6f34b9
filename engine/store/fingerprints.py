"""Fingerprints as they were seen, so that two moments can be compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.store.database import Store

KEPT = 1000
"""Moments of one engine; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A fingerprint and its number in the store."""

    number: int
    seen: Fingerprint


def add(store: Store, seen: Fingerprint) -> bool:
    """Writes `seen` unless the engine's latest one has the same names; whether it did.

    A behaviour that was not tried this time is no news.
    """
    names = seen.names
    with store.transaction() as db:
        last = db.execute(
            "SELECT build, path, behaviour FROM fingerprints WHERE url = ?"
            " ORDER BY id DESC LIMIT 1",
            (seen.url,),
        ).fetchone()
        known = last is not None and last[:2] == (seen.build, seen.path)
        if known and names["behaviour"] in (None, last[2]):
            return False
        db.execute(
            "INSERT INTO fingerprints (t, url, build, path, behaviour, seen)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (seen.t, seen.url, *names.values(), json.dumps(seen.as_json())),
        )
        db.execute(
            "DELETE FROM fingerprints WHERE url = ?1 AND id <= (SELECT id FROM fingerprints"
            " WHERE url = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            (seen.url, KEPT),
        )
    return True


def latest(store: Store, url: str) -> Moment | None:
    """The engine's latest fingerprint; None when none was noted."""
    return next(iter(moments(store, url=url, limit=1)), None)


def moments(
    store: Store, *, url: str | None = None, number: int | None = None, limit: int = 1000
) -> tuple[Moment, ...]:
    """Noted fingerprints, the newest first; of one engine, or the one with a number."""
    with store.transaction(write=False) as db:
        rows = db.execute(
            "SELECT id, seen FROM fingerprints WHERE (?1 IS NULL OR url = ?1)"
            " AND (?2 IS NULL OR id = ?2) ORDER BY id DESC LIMIT ?3",
            (url, number, limit),
        ).fetchall()
    return tuple(_moment(*row) for row in rows)


def _moment(number: int, text: str) -> Moment:
    try:
        data: dict[str, Any] = json.loads(text)
        return Moment(number, Fingerprint.from_json(data))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecdeckError(
            f"the fingerprint @{number} in the store cannot be read: {error}",
            remedy="it was written by another specdeck",
        ) from error
