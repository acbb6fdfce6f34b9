"""A link between a console and an engine that delays, stalls and cuts, and notes the changes.

It alters no byte and no order: what it reorders is time. What passes is read along, so that
the changes that an engine applied can be compared with an audit log.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11

CHUNK = 65536
_CONTROL = b"/v1/specdeck/control"


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """A change that the engine applied, as the link saw it pass."""

    t: float
    """Unix time of the reply, seconds."""
    asked: dict[str, Any]
    applied: dict[str, Any]
    version: int
    """The engine's control version since."""
    delivered: bool
    """Whether whoever asked was still there for the reply."""


class Exchanges:
    """Follows the requests and replies of one connection."""

    def __init__(self) -> None:
        self._server = h11.Connection(h11.SERVER)
        self._client = h11.Connection(h11.CLIENT)
        self._request: h11.Request | None = None
        self._body = b""
        self._status = 0
        self._reply = b""

    def see_request(self, data: bytes) -> None:
        """Takes in what the client sent."""
        self._server.receive_data(data)
        while (event := self._server.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                self._request, self._body = event, b""
                self._client.send(event)
            elif isinstance(event, h11.Data):
                self._body += bytes(event.data)
                self._client.send(event)
            elif isinstance(event, h11.EndOfMessage):
                self._client.send(event)
            else:
                return

    def see_reply(self, data: bytes) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Takes in what the engine sent; changes that it applied, as asked and as answered."""
        found = []
        self._client.receive_data(data)
        while (event := self._client.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Response):
                self._status, self._reply = event.status_code, b""
            elif isinstance(event, h11.Data):
                self._reply += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found += self._finish()
            elif isinstance(event, h11.ConnectionClosed):
                break
        return found

    def _finish(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        request, self._request = self._request, None
        self._server.send(h11.Response(status_code=self._status, headers=[("content-length", "0")]))
        self._server.send(h11.EndOfMessage())
        with suppress(h11.ProtocolError):  # the connection is to be closed
            self._client.start_next_cycle()
            self._server.start_next_cycle()
        if request is None or request.method != b"PUT" or self._status != 200:
            return []
        if request.target.partition(b"?")[0] != _CONTROL:
            return []
        return [(json.loads(self._body), json.loads(self._reply))]


@dataclass(slots=True)
class SlowLink:
    """Where a console reaches an engine, badly."""

    to_port: int
    port: int = 0
    delay_s: float = 0.0
    """Added to every piece in either direction."""
    changes: list[AppliedChange] = field(default_factory=list)
    cuts: int = 0
    _flowing: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        """The engine's address for whoever is behind the link."""
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SlowLink]:
        """Listens while the block runs."""
        self._flowing.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Resets every connection."""
        self.cuts += len(self._writers)
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def disturb(self, rng: random.Random, until: float) -> None:
        """Good and bad times by turns, to `until` by the monotonic clock."""
        while time.monotonic() < until:
            kind = rng.choice(["good", "good", "slow", "slower", "stalled", "cut"])
            self.delay_s = {"slow": 0.15, "slower": 0.8}.get(kind, 0.0)
            if kind == "stalled":
                self._flowing.clear()
            if kind == "cut":
                self.cut()
            await asyncio.sleep(min(rng.uniform(1, 12), max(0.0, until - time.monotonic())))
            self._flowing.set()
        self.delay_s = 0.0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to_port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, back}
        self._writers |= both
        seen = Exchanges()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, back, seen, is_request=True))
                group.create_task(self._carry(there, writer, seen, is_request=False))
        except asyncio.CancelledError:
            return  # the soak is over; asyncio's own callback would log it
        finally:
            self._writers -= both
            for end in both:
                end.transport.abort()

    async def _carry(
        self,
        source: asyncio.StreamReader,
        to: asyncio.StreamWriter,
        seen: Exchanges,
        *,
        is_request: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                found = []
                if is_request:
                    seen.see_request(data)
                else:
                    found = seen.see_reply(data)
                at = time.time()
                await asyncio.sleep(self.delay_s)
                await self._flowing.wait()
                delivered = not to.transport.is_closing()
                self.changes += [
                    AppliedChange(at, asked, reply["applied"], reply["version"], delivered)
                    for asked, reply in found
                ]
                to.write(data)
                await to.drain()
        # One end has closed: so does the other, once it has what was under way.
        with suppress(OSError, RuntimeError):
            to.write_eof()
