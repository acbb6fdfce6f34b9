"""The fingerprint in an incident file: names and facts as they were when it was written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.query import parse_reply
from specdeck.engine.incident.archive import read_member
from specdeck.engine.protocol.codec import loads

LARGEST: Final = 1_500_000
"""Bytes of a member."""
_LATEST: Final = 4e9
"""Unix time: a later one, which no clock shows, is nonsense."""


def read_fingerprint(path: Path) -> Fingerprint | None:
    """What the incident file at `path` has of it; None of one that has none, or nonsense.

    Credentials were taken out of the facts, so that the names need not follow from them.
    """
    try:
        names = _read_json(path, "fingerprint.json").get("last")
        if not isinstance(names, Mapping):
            return None
        told = {**names, "facts": _read_json(path, "facts.json")}
        found = (
            Fingerprint.from_json(told)
            if "engine" in told  # noted on the machine that wrote the file; else the engine's reply
            else parse_reply(told, url="", t=float(told["t"]))
        )
    except (SpecdeckError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return found if 0 <= found.t < _LATEST else None


def _read_json(path: Path, name: str) -> dict[str, Any]:
    """A member; raises ValueError for what is no object."""
    data = read_member(path, name, LARGEST)
    found = None if data is None else loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"no {name}")
    return found
