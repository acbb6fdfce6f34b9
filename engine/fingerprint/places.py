"""Where an engine's pin lies, and whether it is still the one that was read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdeck.engine.fingerprint.pins import default_place, read
from specdeck.engine.fingerprint.seen import Seen

APART_S = 3.0
"""Between two looks at a pin's file."""

_Mark = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Places:
    """The files in which an engine's own pin may lie."""

    folder: Path
    url: str
    name: str | None = None
    """Its name among the engines that specdeck started; None for any other."""

    @property
    def home(self) -> Path:
        """Where a pin is written: a name stays when its engine starts again on another port.

        >>> Places(Path("/pins"), "http://127.0.0.1:8000", "demo-2").home.as_posix()
        '/pins/demo-2.json'
        >>> Places(Path("/pins"), "http://127.0.0.1:8000").home.as_posix()
        '/pins/http-127.0.0.1-8000.json'
        """
        by_url = default_place(self.folder, self.url)
        return by_url if self.name is None else self.folder / f"{file_name(self.name)}.json"

    def found(self) -> Path:
        """Where a pin is read: `home`, unless there is one under the URL alone."""
        home, by_url = self.home, default_place(self.folder, self.url)
        return by_url if by_url != home and by_url.exists() and not home.exists() else home


def file_name(name: str) -> str:
    """`name` as a file's: no separators, no leading dots, nothing that stands for a URL.

    A name that has to be changed for that gets digits of its own, so that no two meet.

    >>> file_name("demo-2"), file_name("../x"), file_name("http-127.0.0.1-8000")
    ('demo-2', 'x-d6b96a97', 'engine-http-127.0.0.1-8000-56f0ff55')
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[:80]
    safe = f"engine-{safe}" if re.match(r"https?-", safe) else safe or "engine"
    digits = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return safe if safe == name else f"{safe}-{digits}"


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin as it was read from its file."""

    place: Path
    seen: Seen | None
    """None where there is no such file."""


class PinFile:
    """An engine's pin, read again when its file is another one: by time, size and inode."""

    def __init__(self, place: Callable[[], Path], *, required: bool = False) -> None:
        self._place = place
        self._required = required
        self._known: tuple[Path, _Mark | None] | None = None
        self._looked = float("-inf")

    def due(self, t: float) -> bool:
        """Whether to look at `t`, Unix time; a look that is due counts as begun."""
        if abs(t - self._looked) < APART_S:
            return False
        self._looked = t
        return True

    def again(self) -> Pin | None:
        """The pin, and None where it is the one of the last look. Blocks: it reads files.

        Raises UsageError, once, for a file that is no pin, and for none where one is required.
        """
        place = self._place()
        mark = _mark(place)
        if self._known == (place, mark):
            return None
        self._known = (place, mark)
        missing = mark is None and not self._required
        return Pin(place, None if missing else read(place))

    def wrote(self, place: Path) -> None:
        """What lies at `place` is known already."""
        self._known = (place, _mark(place))


def _mark(place: Path) -> _Mark | None:
    try:
        found = place.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
