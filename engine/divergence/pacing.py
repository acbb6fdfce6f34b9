"""Keeps a check out of production's way: one request at a time, and rests in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from specdeck.engine.divergence.arms import fetch_counters
from specdeck.engine.metrics.sample import Histogram, quantile

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient


AIM = 1.05
"""How far production's p95 inter-token latency may rise: half of what is tolerated, as the
measure is noisy."""
_LEAST_REST, _MOST_REST = 0.25, 24.0
"""Bounds of the rest after a request, in its own durations. At the upper one a check touches
one step in 25, which no p95 sees."""
FIRST_REST = 16.0
"""The rest after the first request: a check begins unfelt, and hastens where that shows."""
_KEPT = 0.8
"""Of what was measured before, with every turn: some hundred latencies make no steady p95."""


class Pacer:
    """One request at a time, and a rest after each that grows while production feels it.

    What production felt is read from the engine's own histogram of inter-token
    latencies: the p95 of all the time, requests and rests, against that of the rests.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rest: float = FIRST_REST,
    ) -> None:
        self._client = client
        self._sleep = sleep
        self.rest = rest
        """After a request, in its own durations."""
        self._whole: Histogram | None = None
        self._rests: Histogram | None = None

    @asynccontextmanager
    async def turn(self, seconds: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
        """Held for one request; rests before it lets go."""
        began, before = seconds(), await self._itl()
        yield
        took, during = seconds() - began, await self._itl()
        await self._sleep(max(0.02, took * self.rest))
        after = await self._itl()
        whole, rested = _between(before, after), _between(during, after)
        if whole is None or rested is None:
            return
        self._whole, self._rests = _sum(self._whole, whole), _sum(self._rests, rested)
        self._learn(alone=not rested.counts or not rested.counts[-1])

    def _learn(self, *, alone: bool) -> None:
        assert self._whole is not None
        assert self._rests is not None
        felt, unfelt = quantile(self._whole, 0.95), quantile(self._rests, 0.95)
        if alone:
            factor = 0.5  # nobody was served during the rest: there is no one to disturb
        elif felt is None or unfelt is None:
            return
        else:
            factor = 1.5 if felt > AIM * unfelt else 0.9
        self.rest = min(_MOST_REST, max(_LEAST_REST, self.rest * factor))

    async def _itl(self) -> Histogram | None:
        seen = await fetch_counters(self._client)
        return None if seen is None else seen.itl


def _between(older: Histogram | None, newer: Histogram | None) -> Histogram | None:
    """What was observed from one to the other; None across a restart."""
    if older is None or newer is None or older.bounds != newer.bounds:
        return None
    counts = tuple(b - a for a, b in zip(older.counts, newer.counts, strict=True))
    return Histogram(newer.bounds, counts) if min(counts, default=0.0) >= 0 else None


def _sum(known: Histogram | None, new: Histogram) -> Histogram:
    if known is None or known.bounds != new.bounds:
        return new
    counts = tuple(_KEPT * a + b for a, b in zip(known.counts, new.counts, strict=True))
    return Histogram(new.bounds, counts)
