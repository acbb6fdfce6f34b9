"""Pins: a fingerprint in a file, to be committed beside an eval suite, and where it lies.

A pin holds the facts and not only their names, so that a verification that fails can say
what moved. It says when it was edited by hand: its names must follow from its facts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specdeck.engine.errors import UsageError
from specdeck.engine.files import read_file, replace_file
from specdeck.engine.fingerprint.digest import checksum
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.name_check import check_names
from specdeck.engine.protocol.codec import NotJson, loads

SCHEMA = 1
"""Raised when a pin changes its meaning; a newer one is refused."""

LARGEST = 16_000_000
"""Bytes of a file that can be a pin at all."""


def write_pin(seen: Fingerprint, path: Path) -> None:
    """Writes `seen` as a pin, in place of an older one.

    Raises UsageError for names that do not follow from their facts, which no reader of the pin
    would believe, and for a file that cannot be written.
    """
    if check_names(seen) is not None:
        raise UsageError(
            f"the names of {seen.url} do not follow from its facts, so a pin of it proves nothing",
            remedy="is an API key or token spelt like a fact? It is hidden in every answer",
        )
    body = {
        "specdeck_pin": SCHEMA,
        "written": datetime.fromtimestamp(seen.t, UTC).isoformat(timespec="seconds"),
        **seen.as_json(),
    }
    text = json.dumps({**body, "checksum": checksum(body)}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    except OSError as error:
        raise UsageError(
            f"the pin {path} cannot be written: {error.strerror}", remedy="give another file"
        ) from error


def read_pin(path: Path) -> Fingerprint:
    """The fingerprint in a pin.

    Raises UsageError for a file that is none, is of a newer schema, or was edited.
    """
    body = _body(path)
    schema = body.get("specdeck_pin")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise UsageError(f"{path} is not a pin", remedy="make one with `specdeck fingerprint pin`")
    if schema > SCHEMA:
        raise UsageError(
            f"{path} is a pin of schema {schema}, this specdeck knows {SCHEMA}",
            remedy="update specdeck here, or pin again",
        )
    try:
        seen = Fingerprint.from_json(body)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{path} is a pin with a part missing: {error}") from error
    if body.get("checksum") != checksum(body) or check_names(seen) is not None:
        raise UsageError(
            f"{path} was edited by hand: its names no longer follow from its facts",
            remedy="pin again with `specdeck fingerprint pin`",
        )
    return seen


def _body(path: Path) -> dict[str, Any]:
    try:
        body = loads(read_file(path, most=LARGEST))
    except FileNotFoundError:
        raise UsageError(
            f"there is not a pin at {path}", remedy="make one with `specdeck fingerprint pin`"
        ) from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UsageError(f"{path} is too large for a pin") from error
        raise UsageError(f"the pin {path} cannot be read: {error.strerror}") from error
    except NotJson as error:
        raise UsageError(f"{path} is not a pin: {error}") from error
    if not isinstance(body, dict):
        raise UsageError(f"{path} is not a pin", remedy="make one with `specdeck fingerprint pin`")
    return body


APART_S = 3.0
"""Between two looks at a pin's file."""

_LONGEST = 200
"""Characters of a URL in a file's name, which has 255 bytes at most."""

_Mark = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PinPlaces:
    """The files in which an engine's own pin may lie."""

    folder: Path
    url: str
    name: str | None = None
    """Its name among the engines that specdeck started; None for any other."""

    @property
    def home(self) -> Path:
        """Where a pin is written: a name stays when its engine starts again on another port.

        >>> PinPlaces(Path("/pins"), "http://127.0.0.1:8000", "demo-2").home.as_posix()
        '/pins/demo-2.json'
        >>> PinPlaces(Path("/pins"), "http://127.0.0.1:8000").home.as_posix()
        '/pins/http-127.0.0.1-8000.json'
        """
        return self._by_url if self.name is None else self.folder / f"{file_name(self.name)}.json"

    @property
    def _by_url(self) -> Path:
        safe = re.sub(r"[^A-Za-z0-9.]+", "-", self.url).strip("-")
        if len(safe) > _LONGEST:
            safe = f"{safe[:_LONGEST]}-{_digits(self.url)}"
        return self.folder / f"{safe}.json"

    def find(self) -> Path:
        """Where a pin is read: `home`, unless there is one under the URL alone."""
        home, by_url = self.home, self._by_url
        try:
            return by_url if by_url != home and by_url.exists() and not home.exists() else home
        except OSError:  # another user's folder, which whoever reads it says
            return home


def file_name(name: str) -> str:
    """`name` as a file's: no separators, no leading dots, nothing that stands for a URL.

    A name that has to be changed for that gets digits of its own, so that no two meet.

    >>> file_name("demo-2"), file_name("../x"), file_name("http-127.0.0.1-8000")
    ('demo-2', 'x-d6b96a97', 'engine-http-127.0.0.1-8000-56f0ff55')
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[:80]
    safe = f"engine-{safe}" if re.match(r"https?-", safe) else safe or "engine"
    return safe if safe == name else f"{safe}-{_digits(name)}"


def _digits(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin as it was read from its file."""

    place: Path
    fingerprint: Fingerprint | None
    """None where there is no such file."""


class PinFile:
    """An engine's pin, read again when its file is another one: by time, size and inode."""

    def __init__(self, place: Callable[[], Path], *, required: bool = False) -> None:
        self._place = place
        self._required = required
        self._known: tuple[Path, _Mark | None] | None = None
        self._looked_at = float("-inf")

    def is_due(self, t: float) -> bool:
        """Whether to look at `t`, Unix time; a look that is due counts as begun."""
        if abs(t - self._looked_at) < APART_S:
            return False
        self._looked_at = t
        return True

    def read_if_changed(self) -> Pin | None:
        """The pin, and None where it is the one of the last look. Blocks: it reads files.

        Where an engine of another name has its address by now, and no pin of its own, it is the
        pin of the one before: whoever watches the address has pinned what answers there.
        Raises UsageError, once, for a file that is not a pin, and for none where one is required.
        """
        place = self._place()
        mark = _mark(place)
        if mark is None and self._known is not None and (kept := _mark(self._known[0])) is not None:
            place, mark = self._known[0], kept
        if self._known == (place, mark):
            return None
        self._known = (place, mark)
        missing = mark is None and not self._required
        return Pin(place, None if missing else read_pin(place))

    def mark_known(self, place: Path) -> None:
        """What lies at `place` is known already."""
        self._known = (place, _mark(place))


def _mark(place: Path) -> _Mark | None:
    try:
        found = place.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
