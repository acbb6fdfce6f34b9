"""One look at the engine core for everybody who asks at the same time.

A look runs on the engine core's thread, between two steps of everybody's requests, and any
client may ask for one. So their number follows from time and not from who asks how often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar

_T = TypeVar("_T")

GAP_S = 0.05
"""At least, between the beginnings of two looks of one kind."""


class SharedLook(Generic[_T]):
    """Takes a look that begins after it was asked for, once for all who asked until then.

    So nobody is told what was true before they asked: a change that was acknowledged is seen.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[_T]],
        *,
        gap_s: float = GAP_S,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`look` says failures by what it returns; what it raises, all who wait are told."""
        self._look = look
        self._gap_s = gap_s
        self._clock = clock
        self._sleep = sleep
        self._next: asyncio.Task[_T] | None = None
        """The look that has not begun."""
        self._last: asyncio.Task[_T] | None = None
        """The one before it."""
        self._began: float | None = None

    async def take(self) -> _T:
        """What the next look sees."""
        if self._next is None:
            self._next = asyncio.create_task(self._take(self._last))
        return await asyncio.shield(self._next)  # who gives up does so alone

    async def _take(self, last: asyncio.Task[_T] | None) -> _T:
        if last is not None:
            await asyncio.wait([last])
        if self._began is not None:
            left = self._began + self._gap_s - self._clock()
            if left > 0:
                await self._sleep(left)
        self._began = self._clock()
        self._last, self._next = self._next, None
        return await self._look()
