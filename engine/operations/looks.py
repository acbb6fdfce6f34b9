"""Looks at an engine's state and counters, asked for or taken from readings that come anyway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.metrics.page import parse
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.protocol.messages import EngineState

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

POLL_S = 0.1
"""Between two looks of a command that waits for a change to be seen."""


@dataclass(frozen=True, slots=True)
class Look:
    """State and counters of one engine, in an order that allows conclusions."""

    state: EngineState
    sample: Sample
    """Asked for after `state` was answered, so that it counts at least the steps of `state`."""
    version: int
    """The newest control version known at the sample."""

    @property
    def is_idle(self) -> bool:
        """Whether the engine has no request at all."""
        return self.state.running == 0 and self.state.waiting == 0 and not self.sample.running


Looks = AsyncGenerator[Look | SpecdeckError, None]
"""One look after the other; an engine that does not answer is an error among them."""


async def poll(
    client: EngineClient,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Looks:
    """Asks the engine ten times a second, for ever."""
    while True:
        try:
            state = await client.state()
            look = Look(state, parse(await client.page(), t=0.0, at=clock()), state.version)
        except SpecdeckError as error:
            yield error
        else:
            yield look
        await sleep(POLL_S)


class ReadingFeed:
    """Passes on the readings of one engine to the changes that wait to be seen in them.

    A reading asks for page and state at once, so a look is the state of one reading with the
    page of the next.
    """

    def __init__(self) -> None:
        self._followers: set[asyncio.Queue[Reading]] = set()

    def push(self, reading: Reading) -> None:
        """Passes `reading` on to everybody who follows."""
        for queue in self._followers:
            queue.put_nowait(reading)

    async def looks(self) -> Looks:
        """Looks made of the readings from now on, for ever."""
        before: EngineState | None = None
        async with aclosing(self._follow()) as readings:
            async for reading in readings:
                if reading.sample is None or reading.state is None:
                    before, error = None, reading.error or reading.control_error
                    if error is not None:
                        yield error
                    continue
                if before is not None:
                    yield Look(before, reading.sample, reading.state.version)
                before = reading.state

    async def _follow(self) -> AsyncGenerator[Reading, None]:
        queue: asyncio.Queue[Reading] = asyncio.Queue()
        self._followers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._followers.discard(queue)
