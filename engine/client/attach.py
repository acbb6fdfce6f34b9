"""One engine that a console follows, and may change once it is armed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from specdeck.engine.client.address import engine_url, is_local
from specdeck.engine.client.secret import Secret
from specdeck.engine.client.token import TOKEN_REMEDY, TokenSource, no_token
from specdeck.engine.errors import EngineError, Unauthorized, Unsupported
from specdeck.engine.metrics.gpu import read_gpus
from specdeck.engine.metrics.reading import Gpu, Reading
from specdeck.engine.metrics.scrape import readings

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

Gpus = Callable[[], tuple[Gpu, ...] | None]


class MonitoredEngine(Protocol):
    """What a console flies: a live engine, a recording, or a list in a test."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def url(self) -> str:
        """Where it answers, without credentials."""

    @property
    def armed(self) -> bool:
        """Whether changes are let through."""

    @property
    def local(self) -> bool:
        """Whether it answers on this machine's loopback."""

    def arm(self) -> None:
        """Lets changes through; raises EngineError where there can be none."""

    def readings(self, every: float) -> AsyncIterator[Reading]:
        """Looks every `every` seconds, for ever."""

    async def close(self) -> None:
        """Lets go of connections; the engine goes on."""


@dataclass(frozen=True, slots=True)
class UnopenedClient:
    """A client that is opened when its engine is first asked, as httpx is not for a first paint."""

    url: str
    token: TokenSource
    open: Callable[[], EngineClient]


class AttachedEngine:
    """A live engine; its client lets no change through until it is armed."""

    def __init__(
        self,
        client: EngineClient | UnopenedClient,
        *,
        name: str | None = None,
        armed: bool = False,
        exit_error: Callable[[], EngineError | None] = lambda: None,
        gpus: Gpus = read_gpus,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`exit_error` says how the process ended; None while it runs or is not ours."""
        self._client = client
        if not isinstance(client, UnopenedClient):
            self._watch(client)
        self._exit_error = exit_error
        self.name = name or urlsplit(client.url).netloc
        self.armed = armed
        self._gpus: Gpus | None = gpus if is_local(client.url) else None
        self._clock = clock
        self._wall = wall
        self._is_asked = asyncio.Event()
        """Whether a reading is wanted before it is due."""

    @property
    def url(self) -> str:
        """Where it answers."""
        return self._client.url

    @property
    def local(self) -> bool:
        """Whether it answers on this machine's loopback."""
        return is_local(self.url)

    @property
    def client(self) -> EngineClient:
        """For what a console asks beyond readings, and for what it changes."""
        if isinstance(self._client, UnopenedClient):
            self._client = self._client.open()
            self._watch(self._client)
        return self._client

    async def require_vllm(self) -> None:
        """Raises EngineError where nothing answers, or something that is no vLLM."""
        await self.client.version()

    def arm(self) -> None:
        """Lets changes through; raises Unauthorized where there is no admin token."""
        self._require_token()
        self.armed = True

    async def readings(self, every: float) -> AsyncGenerator[Reading, None]:
        """Looks every `every` seconds, for ever; at this machine's GPUs too when local."""
        looks = readings(
            self.client, every=every, clock=self._clock, wall=self._wall, sleep=self._rest
        )
        async with aclosing(looks) as stream:
            async for reading in stream:
                gone = self._exit_error()
                if gone is not None:
                    yield reading.as_down(gone)
                    continue
                found = await self._look_at_gpus()
                yield reading if found is None else replace(reading, gpus=found)

    def look(self) -> None:
        """Has the next of `readings` taken at once; after one that is under way, which may be of
        an earlier moment."""
        self._is_asked.set()

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_asked.wait()
        self._is_asked.clear()

    def disarm(self) -> None:
        """Lets no more changes through, until it is armed again."""
        self.armed = False

    def _watch(self, client: EngineClient) -> None:
        """Has the client keep changes back while this is read-only, which it is again once the
        engine has refused the admin token."""
        client.guard, client.on_refused = self._require_control, self.disarm

    def _require_control(self) -> None:
        """Raises Unsupported while this is read-only, Unauthorized without a token, or how the
        engine ended."""
        if not self.armed:
            raise Unsupported(
                f"{self.name} is attached read-only", remedy="arm it, or attach with --control"
            )
        if (gone := self._exit_error()) is not None:
            raise gone
        self._require_token()

    async def close(self) -> None:
        """Lets go of connections; the engine goes on."""
        if not isinstance(self._client, UnopenedClient):
            await self._client.close()

    def _require_token(self) -> None:
        if self._client.token() is None:
            raise Unauthorized(f"there is no admin token for {self.name}", remedy=TOKEN_REMEDY)

    async def _look_at_gpus(self) -> tuple[Gpu, ...] | None:
        if self._gpus is None:
            return None
        # A driver that is waking a GPU up can take its time.
        found = await asyncio.to_thread(self._gpus)
        if found is None:
            self._gpus = None
        return found


def attach(
    url: str,
    *,
    name: str | None = None,
    api_key: Secret | None = None,
    token: TokenSource = no_token,
    control: bool = False,
) -> AttachedEngine:
    """The engine that `url` means, however it is spelt; nothing is asked of it yet.

    Raises UsageError for a URL that is none, and Unauthorized for `control` without a
    token.
    """
    from specdeck.engine.client.engine_client import open_client  # httpx: after the first paint

    client = open_client(engine_url(url), api_key=api_key, token=token)
    attached = AttachedEngine(client, name=name)
    if control:
        attached.arm()
    return attached
