"""Fetches, probes, pins and recalls fingerprints of engines, and notes what it fetched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.fingerprint.behaviour import Behaviour
from specdeck.engine.fingerprint.compare import Comparison
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.name import Layer, is_partial
from specdeck.engine.fingerprint.name_check import DOUBTS, check_names
from specdeck.engine.fingerprint.pins import PinFile, PinPlaces, write_pin
from specdeck.engine.fingerprint.query import (
    OnProgress,
    fetch_fingerprint,
    fetch_finished,
    fetch_with_behaviour,
)
from specdeck.engine.store import fingerprints as stored
from specdeck.engine.store.database import Store

OpenClient = Callable[[str], EngineClient]
"""A client of what an operator calls an engine: a URL, a port, a name; raises SpecdeckError."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A fingerprint of the history, and its number there."""

    number: int
    fingerprint: Fingerprint

    def as_json(self) -> dict[str, Any]:
        """A row of `fingerprint show --history --json`."""
        found = self.fingerprint
        return {"moment": f"@{self.number}", "t": found.t, **found.names}


@dataclass(frozen=True, slots=True)
class WrittenPin:
    """A pin that was written."""

    place: Path
    fingerprint: Fingerprint

    def as_json(self) -> dict[str, Any]:
        """The keys of `fingerprint pin --json`."""
        found = self.fingerprint
        return {"pin": str(self.place), **found.names, "partial": found.partial}


@dataclass(frozen=True, slots=True)
class Verification:
    """A comparison, and the pin that it was made with."""

    comparison: Comparison
    pin: Path | None = None
    """None where the older side is not a pin."""

    def as_json(self) -> dict[str, Any]:
        """The keys of `fingerprint verify --json` and `diff --json`."""
        return {**self.comparison.as_json(), "pin": str(self.pin) if self.pin else None}


@dataclass(frozen=True, slots=True)
class NameVerification:
    """A name that was expected, and the one that the engine has; it says whether, and not what.

    A name that does not follow from the engine's facts is not taken for what serves.
    """

    layer: Layer
    expected: str
    found: str | None
    reason: str | None = None
    """Why the name that was found is not believed; None where it is."""

    @classmethod
    def of(cls, seen: Fingerprint, layer: Layer, expected: str) -> Self:
        """What `seen` says to `expected`, a name of `layer`.

        Where a part of the facts is hidden here, the engine's word has to do.
        """
        doubt, found = check_names(seen), seen.names[layer]
        reason = None if doubt in (None, "hidden") else f"the names {DOUBTS[doubt]}"
        if found is not None and is_partial(found):
            reason = reason or "not every fact could be read, and a partial name verifies nothing"
        return cls(layer, expected, found, reason)

    @property
    def same(self) -> bool:
        """Whether they are the same name, and it is believed."""
        return self.found == self.expected and self.reason is None

    def as_json(self) -> dict[str, Any]:
        """The keys of `fingerprint verify --expect NAME --json`."""
        return {"same": self.same, **asdict(self)}


class Fingerprints:
    """Fingerprints of engines; each call opens a client of its own and closes it."""

    def __init__(
        self,
        open_client: OpenClient,
        *,
        pins: Path,
        store: Path,
        given: Mapping[str, Path] | None = None,
        find_name: Callable[[str], str | None] = lambda url: None,
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`pins` is the folder of pins and `store` the file with the history.

        `given` are pins that were named for engines, by URL. `find_name` is what `ps` calls the
        engine at a URL. `on_notice` is told what could not be noted in the history.
        """
        self._open_client = open_client
        self._pins = pins
        self.store = store
        self._given = dict(given or {})
        self._find_name = find_name
        self._on_notice = on_notice

    async def fetch(self, engine: str, *, ask_own: bool = True) -> Fingerprint:
        """The fingerprint at this moment; raises SpecdeckError.

        `ask_own` is for vLLM's own, which costs a token where there is no plugin.
        """
        async with self._client(engine) as client:
            found = await fetch_fingerprint(client, ask_own=ask_own)
        await self._note(found)
        return found

    async def fetch_finished(
        self,
        engine: str,
        *,
        on_progress: OnProgress = lambda progress, stalled_s: None,
    ) -> Fingerprint:
        """The fingerprint once the engine has read its weights.

        `on_progress` hears how far the reading is, and how long it has stood still. Raises
        SpecdeckError.
        """
        async with self._client(engine) as client:
            found = await fetch_finished(client, on_progress=on_progress)
        await self._note(found)
        return found

    async def fetch_with_behaviour(
        self,
        engine: str,
        *,
        beside: Behaviour | None = None,
        on_progress: OnProgress = lambda progress, stalled_s: None,
        on_answer: Callable[[int, int], None] = lambda done, of: None,
    ) -> Fingerprint:
        """The same with what the engine does; `on_answer` hears of each answer to a probe.

        `beside` is the behaviour that it is to be compared with, which takes more answers.
        """
        async with self._client(engine) as client:
            found = await fetch_with_behaviour(
                client, beside=beside, on_progress=on_progress, on_answer=on_answer
            )
        await self._note(found)
        return found

    def places(self, url: str) -> PinPlaces:
        """Where the pin of the engine at `url` may lie, by the name that it has by now."""
        return PinPlaces(self._pins, url, self._find_name(url))

    def pin_place(self, url: str) -> Path:
        """Where the pin of the engine at `url` lies, or would."""
        return self._given.get(url) or self.places(url).find()

    def new_pin_place(self, url: str) -> Path:
        """Where a new pin of the engine at `url` is written."""
        return self._given.get(url) or self.places(url).home

    def pin_file(self, url: str) -> PinFile:
        """The engine's pin, to be read again and again."""
        return PinFile(lambda: self.pin_place(url), required=url in self._given)

    async def read_pin(self, url: str) -> Fingerprint | None:
        """The engine's pin; None where there is none. Raises UsageError for one that is none."""
        found = await asyncio.to_thread(self.pin_file(url).read_if_changed)
        return None if found is None else found.fingerprint

    async def pin(self, found: Fingerprint, place: Path | None = None) -> WrittenPin:
        """Writes `found` as the pin of its engine, or to `place`; raises SpecdeckError."""
        place = place or self.new_pin_place(found.url)
        await asyncio.to_thread(write_pin, found, place)
        return WrittenPin(place, found)

    async def moments(
        self, url: str | None = None, *, number: int | None = None, limit: int = 1000
    ) -> tuple[Moment, ...]:
        """What was noted, the newest first: of one engine, or the one with a number.

        Raises SpecdeckError for a history that cannot be read.
        """

        def read() -> tuple[Moment, ...]:
            with Store(self.store) as store:
                found = stored.moments(store, url=url, number=number, limit=limit)
            return tuple(_moment(one) for one in found)

        return await asyncio.to_thread(read)

    async def _note(self, found: Fingerprint) -> None:
        """Into the history; one that cannot be used stops no comparison."""

        def write() -> None:
            with Store(self.store) as store:
                stored.add(store, found.as_json())

        if found.progress.finished:
            try:
                await asyncio.to_thread(write)
            except SpecdeckError as error:
                self._on_notice(f"not noted in the history: {error.line()}")

    @asynccontextmanager
    async def _client(self, engine: str) -> AsyncIterator[EngineClient]:
        client = self._open_client(engine)
        try:
            yield client
        finally:
            await client.close()


def _moment(one: stored.StoredFingerprint) -> Moment:
    try:
        return Moment(one.number, Fingerprint.from_json(one.data))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"the fingerprint @{one.number} in the store cannot be read: {error}",
            remedy="it was written by another specdeck",
        ) from error
