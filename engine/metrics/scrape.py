"""Looks at one engine again and again; whatever happens to it is a reading, never a crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from specdeck.engine.errors import EngineError, SpecdeckError, Unauthorized, Unsupported
from specdeck.engine.metrics.page import read_page
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import between, has_restarted
from specdeck.engine.protocol.messages import EngineState

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

PATIENCE_S = 10.0
"""How long a plugin that is not there is left alone: it comes with a restart only."""


class Source(Protocol):
    """An engine that can be looked at; both methods raise SpecdeckError where it cannot."""

    @property
    def url(self) -> str:
        """Where it answers, without credentials."""

    async def page(self) -> str:
        """The metrics page, as text."""

    async def state(self) -> EngineState:
        """What the plugin says of it."""


async def readings(
    client: Source,
    *,
    every: float,
    clock: Clock = time.monotonic,
    wall: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[Reading, None]:
    """Looks every `every` seconds, for ever; a look that took longer delays no later one.

    A `sleep` that ends early has it look at once, and the rhythm is kept from there.
    Cancelling it in mid-look ends the requests under way.
    """
    scraper = Scraper(client, clock=clock, wall=wall)
    due = clock()
    while True:
        yield await scraper.read()
        now = clock()
        due += every
        if due <= now:
            # Looks that were missed are left out, and the rhythm is kept.
            due += ((now - due) // every + 1) * every
        await sleep(due - now)
        due = min(due, clock())


class Scraper:
    """What has to be remembered from one look at an engine to the next."""

    def __init__(
        self, client: Source, *, clock: Clock = time.monotonic, wall: Clock = time.time
    ) -> None:
        self._client = client
        self._clock = clock
        self._wall = wall
        self._last: Sample | None = None
        """The last sample, be it from before an outage."""
        self._unbroken = False
        """Whether the last look brought a sample."""
        self._instance: str | None = None
        self._control_error: EngineError | None = None
        self._ask_again = float("-inf")

    async def read(self) -> Reading:
        """One look: page and state at once."""
        page, state = await asyncio.gather(self._page(), self._state())
        t = self._wall()
        if not isinstance(page, Sample):
            self._unbroken = False
            # Whatever comes back may be another process, with or without the plugin.
            self._ask_again = float("-inf")
            if state is not None:
                return self._read_word(t, page, state)
            return Reading(t, self._client.url, error=page, control_error=self._control_error)
        if self._last is not None and has_restarted(self._last, page) and state is None:
            self._ask_again = float("-inf")
        return self._reading(t, page, state)

    def _read_word(self, t: float, error: EngineError, state: EngineState) -> Reading:
        """A look at an engine whose plugin answers and whose page does not."""
        anew = self._instance not in (None, state.instance)
        if anew:
            self._last = None  # so that the restart is told once
        self._instance = state.instance
        return Reading(t, self._client.url, unmeasured=state, error=error, restarted=anew)

    def _reading(self, t: float, sample: Sample, state: EngineState | None) -> Reading:
        last, unbroken = self._last, self._unbroken
        anew = last is not None and has_restarted(last, sample)
        if state is not None:
            anew = anew or self._instance not in (None, state.instance)
            self._instance = state.instance
        elif anew:
            # The plugin of the new process must not be taken for yet another one.
            self._instance = None
        self._last, self._unbroken = sample, True
        return Reading(
            t,
            self._client.url,
            sample=sample,
            window=between(last, sample) if last and unbroken and not anew else None,
            state=state,
            control_error=None if state else self._control_error,
            restarted=anew,
        )

    async def _page(self) -> Sample | EngineError:
        try:
            text = await self._client.page()
            return await read_page(text, t=self._wall(), at=self._clock())
        except SpecdeckError as error:
            return _engines(error)

    async def _state(self) -> EngineState | None:
        """The plugin's word; None, with `_control_error` set, where there is none."""
        if self._clock() < self._ask_again:
            return None
        try:
            state = await self._client.state()
        except SpecdeckError as error:
            self._control_error = _engines(error)
            # These do not mend themselves; a silence may be over at the next look.
            if isinstance(error, Unsupported | Unauthorized):
                self._ask_again = self._clock() + PATIENCE_S
            return None
        self._control_error = None
        return state


def _engines(error: SpecdeckError) -> EngineError:
    """`error` as one that a reading can carry."""
    return error if isinstance(error, EngineError) else EngineError(str(error), remedy=error.remedy)
