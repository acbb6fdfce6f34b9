"""Everything that a console wants of fingerprints: looks, pins, probes, earlier moments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.engine.errors import SpecdeckError

# What a look needs is imported by the first one: a console paints before it.
if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.fingerprint.export import Webhook
    from specdeck.engine.fingerprint.fingerprint import Fingerprint
    from specdeck.engine.fingerprint.pins import PinFile, PinPlaces
    from specdeck.engine.store.fingerprints import Moment

Opened = Callable[[str], "EngineClient"]
"""A client of what an operator calls an engine: a URL, a port, a name; raises SpecdeckError."""


class Book:
    """Fingerprints of engines; each call opens a client of its own and closes it."""

    def __init__(
        self,
        opened: Opened,
        *,
        pins: Path,
        store: Path,
        given: Mapping[str, Path] | None = None,
        named: Callable[[str], str | None] = lambda url: None,
        webhook: Webhook | None = None,
    ) -> None:
        self._opened = opened
        self._pins = pins
        self._store = store
        self._given = dict(given or {})
        self._named = named
        self._names: dict[str, str | None] = {}
        self.webhook = webhook

    async def look(self, engine: str, *, ask_own: bool = False) -> Fingerprint:
        """The fingerprint at this moment, noted in the history; raises SpecdeckError.

        `ask_own` is for vLLM's own, which costs a token where there is no plugin.
        """
        from specdeck.engine.fingerprint.query import fetch_fingerprint

        async with self._client(engine) as client:
            seen = await fetch_fingerprint(client, ask_own=ask_own)
        await self._note(seen)
        return seen

    async def probed(
        self, seen: Fingerprint, told: Callable[[int, int], None] = lambda done, of: None
    ) -> Fingerprint:
        """`seen` as it is by now, with its behaviour; `told` hears how many probes are done."""
        from specdeck.engine.fingerprint.query import fetch_fingerprint, probe_behaviour

        async with self._client(seen.url) as client:
            behaviour = await probe_behaviour(client, told=told)
            found = replace(await fetch_fingerprint(client), behaviour=behaviour)
        await self._note(found)
        return found

    def place(self, url: str) -> Path:
        """Where the pin of the engine at `url` lies, or would."""
        return self._given.get(url) or self._places(url).found()

    def home(self, url: str) -> Path:
        """Where a new pin of the engine at `url` is written."""
        return self._given.get(url) or self._places(url).home

    def pin_file(self, url: str) -> PinFile:
        """The engine's pin, to be looked at again and again."""
        from specdeck.engine.fingerprint.pins import PinFile

        return PinFile(lambda: self._place_now(url), required=url in self._given)

    async def pinned(self, url: str) -> Fingerprint | None:
        """The engine's pin; None where there is none. Raises UsageError for one that is none."""
        found = await asyncio.to_thread(self.pin_file(url).again)
        return None if found is None else found.seen

    async def pin(self, seen: Fingerprint) -> Path:
        """Writes `seen` as the pin of its engine; raises SpecdeckError."""
        from specdeck.engine.fingerprint.pins import write_pin

        place = self.home(seen.url)
        await asyncio.to_thread(write_pin, seen, place)
        return place

    def _place_now(self, url: str) -> Path:
        """`place`, with the engine's name as it is by now: it may have been started since."""
        self._names.pop(url, None)
        return self.place(url)

    def _places(self, url: str) -> PinPlaces:
        from specdeck.engine.fingerprint.pins import PinPlaces

        if url not in self._names:
            self._names[url] = self._named(url)
        return PinPlaces(self._pins, url, self._names[url])

    async def moments(self, url: str) -> tuple[Moment, ...]:
        """What was noted of the engine at `url`, the newest first; raises SpecdeckError."""
        from specdeck.engine.store.database import Store
        from specdeck.engine.store.fingerprints import moments

        def read() -> tuple[Moment, ...]:
            with Store(self._store) as store:
                return moments(store, url=url, limit=100)

        return await asyncio.to_thread(read)

    async def _note(self, seen: Fingerprint) -> None:
        """Into the history; one that cannot be used stops no comparison."""
        from specdeck.engine.store.database import Store
        from specdeck.engine.store.fingerprints import add

        def write() -> None:
            with Store(self._store) as store:
                add(store, seen)

        if seen.progress.finished:
            try:
                await asyncio.to_thread(write)
            except SpecdeckError:
                return

    @asynccontextmanager
    async def _client(self, engine: str) -> AsyncIterator[EngineClient]:
        client = self._opened(engine)
        try:
            yield client
        finally:
            await client.close()
