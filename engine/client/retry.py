"""Repeats a question while an engine is away or busy, and gives notice of the wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from specdeck.engine.errors import SpecdeckError, Unreachable

RETRY_S = 120.0
"""How long a question is repeated unless told otherwise; an engine restarts in half a minute."""
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
QUIET_S = 2.0
"""A wait that nobody needs to hear of."""
NOTICE_EVERY_S = 30.0
"""Between two notices, however many questions wait."""
ACCIDENTS = 3
"""So many internal errors in answer to one question are no accident."""

_T = TypeVar("_T")
Sleep = Callable[[float], Awaitable[None]]


class TryAgain(Exception):
    """Raised by a question that is worth repeating; `error` is raised when time is up."""

    def __init__(
        self, error: SpecdeckError, *, wait_s: float | None = None, accident: bool = False
    ) -> None:
        """`wait_s` is what the server asks for; `accident` is an error of its own making."""
        super().__init__(str(error))
        self.error = error
        self.wait_s = wait_s
        self.accident = accident


@dataclass(frozen=True, slots=True)
class WaitingForEngine:
    """A question that has not been answered so far."""

    error: SpecdeckError
    seconds: float
    """Since it was asked first."""
    limit: float
    """Seconds after which `error` is raised."""

    def line(self) -> str:
        """One line for the operator.

        >>> WaitingForEngine(Unreachable("http://a:1 refuses connections"), 3.0, 120.0).line()
        'http://a:1 refuses connections: waiting for it up to 120 s'
        """
        return f"{self.error}: waiting for it up to {self.limit:.0f} s"


class Retry:
    """Shared by all questions of one use case, so that one notice speaks for all of them."""

    def __init__(
        self,
        seconds: float = RETRY_S,
        *,
        on_notice: Callable[[WaitingForEngine], None] = lambda waiting: None,
        longest_pause_s: float = LONGEST_PAUSE_S,
        quiet_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`seconds` is how long one question is repeated, 0 for not at all.

        `quiet_s` is the wait that is not told of, QUIET_S by default.
        """
        self.seconds = seconds
        self.clock = clock
        self._on_notice = on_notice
        self._longest_pause_s = longest_pause_s
        self._quiet_s = min(QUIET_S if quiet_s is None else quiet_s, seconds)
        self._sleep = sleep
        self._noticed: float | None = None

    async def answer(
        self,
        ask: Callable[[], Awaitable[_T]],
        *,
        errors: type[SpecdeckError] | tuple[type[SpecdeckError], ...] = Unreachable,
        until: float | None = None,
    ) -> _T:
        """What `ask` returns, repeated after `errors` and TryAgain.

        Raises the last error once the next attempt would come after `until`, by the clock;
        by default after this retry's seconds.
        """
        began, tries, accidents = self.clock(), 0, 0
        limit = self.seconds if until is None else until - began
        while True:
            try:
                return await ask()
            except TryAgain as again:
                accidents += again.accident
                error, asked_for = again.error, again.wait_s
            except errors as found:
                error, asked_for = found, None
            pause = self._pause(tries, asked_for)
            waited = self.clock() - began
            if accidents >= ACCIDENTS or waited + pause > limit:
                raise error
            tries += 1
            self._notice(WaitingForEngine(error, waited, limit))
            await self._sleep(pause)

    def _pause(self, tries: int, asked_for: float | None) -> float:
        if asked_for is not None:
            return max(asked_for, FIRST_PAUSE_S)
        return float(min(FIRST_PAUSE_S * 2 ** min(tries, 16), self._longest_pause_s))

    def _notice(self, waiting: WaitingForEngine) -> None:
        now = self.clock()
        due = self._noticed is None or now - self._noticed >= NOTICE_EVERY_S
        if waiting.seconds >= self._quiet_s and due:
            self._noticed = now
            self._on_notice(waiting)
