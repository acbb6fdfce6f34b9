"""Drift beside samples: a line on stderr, and a webhook if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from specdeck.console.cli.fingerprint_book import Expected, book
from specdeck.console.cli.talk import say
from specdeck.engine.errors import SpecdeckError

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.drift import Follower
    from specdeck.engine.fingerprint.export import Webhook
    from specdeck.engine.fingerprint.pins import PinFile
    from specdeck.engine.metrics.reading import Reading

Heard = Callable[["Reading"], None]

LAST_LOOK_S = 5.0
"""For a look or a post that is under way when the samples end."""


@asynccontextmanager
async def watched(
    url: str, expected: Expected, *, api_key_env: str | None = None
) -> AsyncIterator[Heard]:
    """Hears every reading of the engine at `url`; asks it for nothing while it has no pin.

    Raises UsageError for a pin that is none, or that was named and is not there.
    """
    from specdeck.engine.fingerprint.drift import Follower

    pages = book((url,), expected, api_key_env=api_key_env)
    follower, pins = Follower(lambda: pages.look(url)), pages.pin_file(url)
    if (found := await asyncio.to_thread(pins.again)) is not None:
        follower.expect(found)
    teller = Teller(follower, pages.webhook, pins)
    try:
        yield teller.heard
    finally:
        await teller.close()


class Teller:
    """Looks beside the samples, which wait for no look."""

    def __init__(
        self,
        follower: Follower,
        webhook: Webhook | None,
        pins: PinFile | None = None,
        say: Callable[[str], None] = say,
    ) -> None:
        self._follower = follower
        self._webhook = webhook
        self._pins = pins
        self._say = say
        self._looks: set[asyncio.Task[None]] = set()
        self._posts: set[asyncio.Task[None]] = set()

    def heard(self, reading: Reading) -> None:
        """Look behind the names if the reading says that they or the pin may have moved."""
        if not self._looks and (self._moved(reading) or self._pin_due(reading)):
            _begin(self._look(reading), self._looks)

    def _moved(self, reading: Reading) -> bool:
        return self._follower.judge is not None and self._follower.due(reading)

    def _pin_due(self, reading: Reading) -> bool:
        return self._pins is not None and reading.up and self._pins.due(reading.t)

    async def close(self) -> None:
        """Let what is under way come to its end, for a while."""
        for tasks in (self._looks, self._posts):  # a look may begin a post
            if tasks:
                await asyncio.wait(set(tasks), timeout=LAST_LOOK_S)
        for task in self._looks | self._posts:
            task.cancel()

    async def _look(self, reading: Reading) -> None:
        await self._expect()
        if not self._moved(reading):
            return
        sight = await self._follower.sight(reading)
        if sight is None or sight.drift is None:
            return
        self._say(f"specdeck: {sight.drift.line}")
        if self._webhook is not None:
            _begin(self._post(sight.drift.as_json()), self._posts)

    async def _expect(self) -> None:
        """Go by the pin as it lies in its file by now; one that is none leaves the old one."""
        if self._pins is None:
            return
        try:
            found = await asyncio.to_thread(self._pins.again)
        except SpecdeckError as error:
            self._say(f"specdeck: {error.line()}")
            return
        if found is not None and (news := self._follower.expect(found)) is not None:
            self._say(f"specdeck: {news}")

    async def _post(self, body: dict[str, Any]) -> None:
        assert self._webhook is not None
        if (reason := await self._webhook.post(body)) is not None:
            self._say(f"specdeck: {reason}")


def _begin(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
