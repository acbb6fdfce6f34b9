"""How long a check waits for an engine that has answered before and does not now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from specdeck.engine.errors import SpecdeckError, Unreachable

PATIENCE_S = 120.0
"""How long one question is asked again; an engine restarts in half a minute."""
_PAUSE_S = 1.0
_SHORT_S = 2.0
"""A wait that nobody needs to hear of."""
_TOLD_S = 30.0
"""Between two words about it, however many requests wait."""

_T = TypeVar("_T")
Sleep = Callable[[float], Awaitable[None]]


def _silent(_: str) -> None:
    """Nobody hears of a wait."""


class Patience:
    """Shared by all that a check asks; `said` hears that an engine is waited for, and why."""

    def __init__(
        self,
        seconds: float = PATIENCE_S,
        said: Callable[[str], None] = _silent,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.sleep = sleep
        self.clock = clock
        self._said = said
        self._told: float | None = None

    def waits(self, error: SpecdeckError, waited: float) -> None:
        """Tells of an engine that has been waited for so long, in seconds."""
        now = self.clock()
        due = self._told is None or now - self._told >= _TOLD_S
        if waited >= min(_SHORT_S, self.seconds) and due:
            self._told = now
            self._said(f"{error}: waiting for it up to {self.seconds:g} s")

    async def of(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """What `ask` gives; Unreachable is raised only when the patience is at its end.

        A core that has stalled counts as an engine that is away.
        """
        began = self.clock()
        while True:
            try:
                return await ask()
            except Unreachable as error:
                waited = self.clock() - began
                if waited + _PAUSE_S > self.seconds:
                    raise
                self.waits(error, waited)
                await self.sleep(_PAUSE_S)
