"""Pins: a fingerprint in a file, to be committed beside an eval suite.

A pin holds the facts and not only their names, so that a verification that fails can say
what moved. It says when it was edited by hand: its names must follow from its facts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.fingerprint.digest import canonical, is_partial, layer_of
from specdeck.engine.fingerprint.seen import Seen, names_of

SCHEMA = 1
"""Raised when a pin changes its meaning; a newer one is refused."""

LARGEST = 16_000_000
"""Bytes of a file that can be a pin at all."""


def default_place(folder: Path, url: str) -> Path:
    """Where an engine's pin lies unless it is told otherwise.

    >>> default_place(Path("/pins"), "http://127.0.0.1:8000").as_posix()
    '/pins/http-127.0.0.1-8000.json'
    """
    return folder / f"{re.sub(r'[^A-Za-z0-9.]+', '-', url).strip('-')}.json"


def write(seen: Seen, path: Path) -> None:
    """Writes `seen` as a pin, in place of an older one; raises SpecdeckError."""
    body = {
        "specdeck_pin": SCHEMA,
        "written": datetime.fromtimestamp(seen.t, UTC).isoformat(timespec="seconds"),
        **seen.as_json(),
    }
    text = json.dumps({**body, "checksum": checksum(body)}, indent=1, ensure_ascii=False) + "\n"
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise SpecdeckError(f"the pin {path} cannot be written: {error.strerror}") from error


def read(path: Path) -> Seen:
    """The fingerprint in a pin.

    Raises UsageError for a file that is none, is of a newer schema, or was edited.
    """
    body = _body(path)
    schema = body.get("specdeck_pin")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise UsageError(f"{path} is no pin", remedy="make one with `specdeck fingerprint pin`")
    if schema > SCHEMA:
        raise UsageError(
            f"{path} is a pin of schema {schema}, this specdeck knows {SCHEMA}",
            remedy="update specdeck here, or pin again",
        )
    try:
        seen = Seen.from_json(body)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{path} is a pin with a part missing: {error}") from error
    if body.get("checksum") != checksum(body) or not _follows(seen):
        raise UsageError(
            f"{path} was edited by hand: its names no longer follow from its facts",
            remedy="pin again with `specdeck fingerprint pin`",
        )
    return seen


def checksum(body: Mapping[str, Any]) -> str:
    """Of everything in a pin but the checksum itself."""
    kept = {name: value for name, value in body.items() if name != "checksum"}
    return hashlib.sha256(canonical(kept)).hexdigest()[:16]


def is_name(expected: str) -> bool:
    """Whether `expected` is a name, alone or behind vLLM's own, and not a file.

    >>> is_name("sd1:p0123456789abcdef"), is_name("pins/prod.json")
    (True, False)
    """
    return layer_of(own_part(expected)) is not None


def own_part(name: str) -> str:
    """specdeck's part of a system_fingerprint, without the k of a pinned request.

    >>> own_part("vllm-0.32.0-09d54272-sd1:p0123456789abcdef")
    'sd1:p0123456789abcdef'
    """
    whole = name.partition("+k")[0]
    head, mark, tail = whole.rpartition("-sd1:")
    return f"sd1:{tail}" if mark and head else whole


def _follows(seen: Seen) -> bool:
    return (seen.build, seen.path) == names_of(seen.facts, partial=is_partial(seen.path))


def _body(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:  # what a device would give has no size to ask for
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise UsageError(f"{path} is too large for a pin")
        body = json.loads(text)
    except FileNotFoundError:
        raise UsageError(
            f"there is no pin at {path}", remedy="make one with `specdeck fingerprint pin`"
        ) from None
    except OSError as error:
        raise UsageError(f"the pin {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no pin: {' '.join(str(error).split())[:100]}") from error
    if not isinstance(body, dict):
        raise UsageError(f"{path} is no pin", remedy="make one with `specdeck fingerprint pin`")
    return body
