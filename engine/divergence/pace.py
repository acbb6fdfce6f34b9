"""Keeps a check out of production's way on an engine that knows no priorities."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from specdeck.engine.errors import EngineError
from specdeck.engine.metrics.quantile import quantile
from specdeck.engine.metrics.sample import Histogram

if TYPE_CHECKING:
    from specdeck.engine.control.client import EngineClient

TOLERATED = 1.10
"""How far production's p95 inter-token latency may rise."""
_LEAST, _MOST = 0.25, 16.0
"""Bounds of the rest after a request, in its own durations."""


class Pacer:
    """One request at a time, and a rest after each that grows while production feels it.

    What production felt is read from the engine's own histogram of inter-token
    latencies: during the rests for the measure, over the request for the figure.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rest: float = 4.0,
    ) -> None:
        self._client = client
        self._sleep = sleep
        self.rest = rest
        """After a request, in its own durations."""

    @asynccontextmanager
    async def turn(self, seconds: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
        """Held for one request; rests before it lets go."""
        began, before = seconds(), await self._itl()
        yield
        took, during = seconds() - began, await self._itl()
        await self._sleep(max(0.02, took * self.rest))
        self._learn(_p95(before, during), _p95(during, await self._itl()))

    def _learn(self, with_us: float | None, without_us: float | None) -> None:
        if with_us is None or without_us is None:
            return
        factor = 2.0 if with_us > TOLERATED * without_us else 0.8
        self.rest = min(_MOST, max(_LEAST, self.rest * factor))

    async def _itl(self) -> Histogram | None:
        from specdeck.engine.metrics.page import parse

        try:
            return parse(await self._client.page(), t=0.0, at=0.0).itl
        except EngineError:
            return None


def _p95(older: Histogram | None, newer: Histogram | None) -> float | None:
    if older is None or newer is None or older.bounds != newer.bounds:
        return None
    counts = tuple(b - a for a, b in zip(older.counts, newer.counts, strict=True))
    return quantile(Histogram(newer.bounds, counts), 0.95)
