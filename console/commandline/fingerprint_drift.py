"""Drift beside samples: a line on stderr, and a webhook if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from specdeck.console.commandline.fingerprint_book import Expected, book
from specdeck.console.commandline.talk import say

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.drift import Follower
    from specdeck.engine.fingerprint.webhook import Webhook
    from specdeck.engine.metrics.reading import Reading

Heard = Callable[["Reading"], None]

LAST_LOOK_S = 5.0
"""For a look or a post that is under way when the samples end."""


@asynccontextmanager
async def watched(
    url: str, expected: Expected, *, api_key_env: str | None = None
) -> AsyncIterator[Heard]:
    """Hears every reading of the engine at `url`; does nothing where it has no pin.

    Raises UsageError for a pin that was named and is none.
    """
    from specdeck.engine.fingerprint.drift import Follower, Judge

    pages = book((url,), expected, api_key_env=api_key_env)
    pinned = await pages.pinned(url)
    if pinned is None:
        yield lambda reading: None
        return
    follower = Follower(lambda: pages.look(url), Judge(pinned, pages.place(url)))
    teller = Teller(follower, pages.webhook)
    try:
        yield teller.heard
    finally:
        await teller.close()


class Teller:
    """Looks beside the samples, which wait for no look."""

    def __init__(
        self, follower: Follower, webhook: Webhook | None, say: Callable[[str], None] = say
    ) -> None:
        self._follower = follower
        self._webhook = webhook
        self._say = say
        self._looks: set[asyncio.Task[None]] = set()
        self._posts: set[asyncio.Task[None]] = set()

    def heard(self, reading: Reading) -> None:
        """Look behind the names if the reading says that they moved."""
        if not self._looks and self._follower.due(reading):
            _begin(self._look(reading), self._looks)

    async def close(self) -> None:
        """Let what is under way come to its end, for a while."""
        for tasks in (self._looks, self._posts):  # a look may begin a post
            if tasks:
                await asyncio.wait(set(tasks), timeout=LAST_LOOK_S)
        for task in self._looks | self._posts:
            task.cancel()

    async def _look(self, reading: Reading) -> None:
        sight = await self._follower.sight(reading)
        if sight is None or sight.drift is None:
            return
        self._say(f"specdeck: {sight.drift.line}")
        if self._webhook is not None:
            _begin(self._post(sight.drift.as_json()), self._posts)

    async def _post(self, body: dict[str, Any]) -> None:
        assert self._webhook is not None
        if (reason := await self._webhook.post(body)) is not None:
            self._say(f"specdeck: {reason}")


def _begin(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
