"""A recording in the place of an engine: a console flies it and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

from specdeck.engine.control.protocol import Applied, Change
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import Recording, refusal

Sleep = Callable[[float], Awaitable[None]]


class Replayed:
    """One engine of a recording, at `speed` times the pace at which it was recorded."""

    armed = False
    local = False

    def __init__(
        self, recording: Recording, url: str, *, speed: float = 1.0, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._recording = recording
        self._speed = speed
        self._sleep = sleep
        self.url = url
        self.name = urlsplit(url).netloc or url

    def arm(self) -> None:
        """Raises EngineError: there is nothing to change."""
        raise refusal()

    async def readings(self, every: float) -> AsyncIterator[Reading]:
        """The recorded readings, until they end; `every` is theirs, not the caller's."""
        shown = self._recording.first
        for reading in self._recording.readings(self.url):
            if reading.t > shown:
                await self._sleep((reading.t - shown) / self._speed)
                shown = reading.t
            yield reading

    async def change(self, change: Change) -> Applied:
        """Raises EngineError: there is nothing to change."""
        raise refusal()

    async def close(self) -> None:
        """Nothing is held."""
