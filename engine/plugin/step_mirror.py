"""The engine core's remembered steps, copied into the API server's process.

A client may ask for thousands of steps at any time. Each one is told once by the engine core,
whose thread has requests to schedule, and put into words once here.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from specdeck.engine.policy.step import Step

REMEMBERED_STEPS = 4096
PAGE = 512
"""Steps that the engine core tells at a time: it makes steps between two pages."""


class StepMirror:
    """The last steps, oldest first, as the text that a reply carries."""

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


def _step(fields: Iterable[Any]) -> Step:
    return Step(*fields)
