"""Fingerprints as they were seen, so that two moments can be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdeck.engine.errors import UsageError
from specdeck.engine.protocol.codec import read_object
from specdeck.engine.store.database import Store

KEPT = 1000
"""Moments of one engine; older ones are forgotten."""


LARGEST = 250_000
"""Characters of one; an engine's has 30,000. A thousand of them for every engine add up."""


@dataclass(frozen=True, slots=True)
class StoredFingerprint:
    """A fingerprint and its number in the store."""

    number: int
    data: dict[str, Any]
    """The keys of `Fingerprint.as_json`."""


def add(store: Store, fingerprint: Mapping[str, Any]) -> bool:
    """Writes what `Fingerprint.as_json` says, unless the latest has its names; whether it did.

    A behaviour that was not tried this time is no news. Raises UsageError for facts that no
    engine has, and SpecdeckError where the file cannot be used.
    """
    url, names = fingerprint["engine"], fingerprint["names"]
    seen = json.dumps(fingerprint)
    if len(seen) > LARGEST:
        raise UsageError(f"facts of {len(seen) / 1e6:.1f} MB are too many to be kept")
    with store.transaction() as db:
        last = db.execute(
            "SELECT build, path, behaviour FROM fingerprints WHERE url = ?"
            " ORDER BY id DESC LIMIT 1",
            (url,),
        ).fetchone()
        known = last is not None and last[:2] == (names["build"], names["path"])
        if known and names["behaviour"] in (None, last[2]):
            return False
        db.execute(
            "INSERT INTO fingerprints (t, url, build, path, behaviour, seen)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (fingerprint["t"], url, *names.values(), seen),
        )
        db.execute(
            "DELETE FROM fingerprints WHERE url = ?1 AND id <= (SELECT id FROM fingerprints"
            " WHERE url = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            (url, KEPT),
        )
    return True


def moments(
    store: Store, *, url: str | None = None, number: int | None = None, limit: int = KEPT
) -> tuple[StoredFingerprint, ...]:
    """Noted fingerprints, the newest first; of one engine, or the one with a number."""
    with store.transaction(write=False) as db:
        rows = db.execute(
            "SELECT id, seen FROM fingerprints WHERE (?1 IS NULL OR url = ?1)"
            " AND (?2 IS NULL OR id = ?2) ORDER BY id DESC LIMIT ?3",
            (url, number, limit),
        ).fetchall()
    return tuple(_parse_row(*row) for row in rows)


def _parse_row(number: int, text: str) -> StoredFingerprint:
    try:
        return StoredFingerprint(number, read_object(text))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the fingerprint @{number} in the store cannot be read: {error}",
            remedy="it was written by another specdeck",
        ) from error
