"""The names of what one engine core serves, as they are at this moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from specdeck.engine.fingerprint.name import compute_name

Show = Callable[[str], None]
"""Told the path's name whenever it moved."""

PENDING = {"fact": "model, runtime", "reason": "being read"}


class Identity:
    """Facts of the build, and the path: the build's name with what is live.

    The main thread says what is live, another one what it has read of weights and
    libraries; until then, and where something could not be read, the names are partial.
    """

    def __init__(
        self, facts: Mapping[str, Any], *, complete: bool = True, show: Show = lambda _: None
    ) -> None:
        self._lock = threading.Lock()
        self._facts = dict(facts)
        self._unread: list[dict[str, str]] = [] if complete else [PENDING]
        self._show = show
        self._progress: dict[str, Any] = {"finished": complete}
        self._live: dict[str, Any] = {}
        self._build = self._named_build()
        self._path = ""

    def now(self, live: Mapping[str, Any]) -> str:
        """The path's name with `live` in force; readers of the board see it from now on."""
        with self._lock:
            if live != self._live or not self._path:
                self._live = dict(live)
                self._name_path()
            return self._path

    def complete(self, more: Mapping[str, Any], unread: list[dict[str, str]]) -> None:
        """Adds what was read in the background, and what could not be."""
        with self._lock:
            for section, facts in more.items():
                self._facts[section] = {**self._facts.get(section, {}), **facts}
            self._unread = list(unread)
            self._build = self._named_build()
            self._name_path()

    def note(self, progress: Mapping[str, Any]) -> None:
        """How far the reading is."""
        self._progress = dict(progress)

    def as_json(self) -> dict[str, Any]:
        """The reply to `GET facts`."""
        with self._lock:
            return {
                "facts": {**self._facts, "live": self._live},
                "fingerprint": self._path,
                "names": {"build": self._build, "path": self._path},
                "partial": list(self._unread),
                "progress": self._progress,
            }

    def _named_build(self) -> str:
        return compute_name("build", self._facts, partial=bool(self._unread))

    def _name_path(self) -> None:
        facts = {"build": self._build, "live": self._live}
        self._path = compute_name("path", facts, partial=bool(self._unread))
        self._show(self._path)
