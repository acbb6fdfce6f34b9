"""Looks at the engine core, for any number of clients at the price of one.

A look runs on the engine core's thread, between two steps of everybody's requests, and any
client may ask for one. So their number follows from time and not from who asks how often. A
client may ask for thousands of steps, too: each is told once by the engine core, and put into
words once in the API server's process.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Generic, TypeVar

from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.policy.step import Step

_T = TypeVar("_T")

GAP_S = 0.05
"""At least, between the beginnings of two looks of one kind."""

REMEMBERED_STEPS = 4096
PAGE = 512
"""Steps that the engine core tells at a time: it makes steps between two pages."""


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


class StepMirror:
    """The engine core's last steps, oldest first, as the text that a reply carries."""

    def __init__(self, fetch: Callable[[int], Awaitable[Sequence[Sequence[Any]]]]) -> None:
        """`fetch` gives up to `PAGE` steps after a number, oldest first, each as its fields."""
        self._fetch = fetch
        self._numbers: deque[int] = deque(maxlen=REMEMBERED_STEPS)
        self._texts: deque[str] = deque(maxlen=REMEMBERED_STEPS)

    async def catch_up(self) -> None:
        """Fetches what the engine did since the last time."""
        while True:
            page = await self._fetch(self._numbers[-1] if self._numbers else 0)
            for step in map(_step, page):
                self._numbers.append(step.step)
                self._texts.append(json.dumps(step.as_json()))
            if len(page) < PAGE:
                return

    def body(self, since: int) -> str:
        """The reply's JSON with the steps after number `since`."""
        first = bisect_right(self._numbers, since)
        return f'{{"steps": [{", ".join(islice(self._texts, first, None))}]}}'


class StepReader:
    """A mirror that whoever asks at the same time has caught up once."""

    def __init__(self, fetch: Callable[[int], Awaitable[Sequence[Sequence[Any]]]]) -> None:
        """`fetch` is that of `StepMirror`; it may raise Refusal."""
        self.mirror = StepMirror(fetch)
        self.look: SharedLook[dict[str, Any] | Refusal] = SharedLook(self._catch_up)

    async def _catch_up(self) -> dict[str, Any] | Refusal:
        try:
            await self.mirror.catch_up()
        except Refusal as refusal:
            return refusal
        return {}


def _step(fields: Iterable[Any]) -> Step:
    return Step(*fields)
