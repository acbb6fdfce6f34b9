"""An engine on raw sockets that answers with whatever bytes a test gives it, at any pace.

    lies = {"/metrics": endless(head(), b"vllm:a 1\n"), "/version": reply({"version": []})}
    with LyingEngine(lies) as engine:
        ...  # engine.url, from this process or another one
        assert engine.asked_at("/metrics")

What is no lie is answered by an honest engine of functions: `HttpEngine`, `CompletionEngine`, or
any other function of a request.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from types import TracebackType
from typing import Self

import httpx

from tests.support.http_engine import HttpEngine


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is sent for so long, or until the client leaves."""

    seconds: float | None = None
    """None is for ever."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it came."""

    method: str
    path: str
    """Without its query."""
    raw: bytes
    """The request line, the headers and the body: a secret would be in here."""
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """By their names in small letters."""
        lines = self.raw.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}


Part = bytes | Pause
Parts = Iterable[Part]
Lie = bytes | Callable[[Asked], Parts]
"""What is sent, head and all, before the connection is closed; anew for every request."""
Honest = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]


def head(*headers: tuple[str, str], status: int = 200, reason: str = "OK") -> bytes:
    """The head of an answer whose length nothing tells, unless a header does."""
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def reply(body: object, *headers: tuple[str, str], status: int = 200) -> bytes:
    """A whole answer: bytes as they are, a text as UTF-8, anything else as JSON."""
    data = body if isinstance(body, bytes) else encode(body)
    # The connection is closed after a lie: a client that counted on it would meet the closing.
    ends = (("Content-Length", str(len(data))), ("Connection", "close"))
    return head(*ends, *headers, status=status) + data


def encode(body: object) -> bytes:
    """A text as UTF-8, anything else as JSON: NaN, and halves of surrogates escaped, too."""
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def endless(start: bytes, more: bytes, *, every_s: float = 0.0) -> Lie:
    """`start`, and then `more` until the client leaves, every `every_s` seconds."""

    def parts(asked: Asked) -> Iterator[Part]:
        yield start
        for part in repeat(more):
            yield part
            if every_s:
                yield Pause(every_s)

    return parts


def drip(answer: bytes, *, every_s: float, size: int = 1) -> Lie:
    """`answer` in pieces of `size` bytes, every `every_s` seconds."""

    def parts(asked: Asked) -> Iterator[Part]:
        for at in range(0, len(answer), size):
            yield answer[at : at + size]
            yield Pause(every_s)

    return parts


def hang(start: bytes = b"") -> Lie:
    """`start`, and nothing more; the connection stays open."""
    return lambda asked: (start, Pause())


def chunk(data: bytes) -> bytes:
    """One chunk of an answer under `Transfer-Encoding: chunked`; the empty one is its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(body: object) -> bytes:
    """One event of a stream."""
    return b"data: " + (body if isinstance(body, bytes) else encode(body)) + b"\n\n"


EVENT_STREAM = head(("Content-Type", "text/event-stream"))
DONE = event(b"[DONE]")


class LyingEngine:
    """Listens on a port of its own, in a thread of its own, while its block runs."""

    def __init__(
        self,
        lies: Mapping[str, Lie] | None = None,
        *,
        honest: Honest | None = None,
        greeting: Parts | None = None,
    ) -> None:
        """`lies` are by path, without its query; the path `*` stands for all the others.

        `greeting` is sent as soon as somebody connects, whatever is asked, and nothing else is.
        """
        self.lies = dict(lies or {})
        self._honest: Honest = honest or HttpEngine()
        self._greeting = greeting
        self.asked: list[Asked] = []
        self.sent = 0
        """Bytes of all lies together."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listens.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def asked_at(self, path: str) -> list[Asked]:
        """What was asked at `path`, in order."""
        return [asked for asked in self.asked if asked.path == path]

    def _run(self) -> None:
        try:
            server = self._loop.run_until_complete(
                asyncio.start_server(self._serve, "127.0.0.1", 0)
            )
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._listens.set()
            self._loop.run_forever()
            server.close()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with suppress(ConnectionError):  # a client may leave whenever it likes
                if self._greeting is not None:
                    await self._send(self._greeting, reader, writer)
                    return
                while (asked := await _read_request(reader)) is not None:
                    self.asked.append(asked)
                    lie = self.lies.get(asked.path, self.lies.get("*"))
                    if lie is not None:
                        parts = (lie,) if isinstance(lie, bytes) else lie(asked)
                        await self._send(parts, reader, writer)
                        return
                    writer.write(await self._tell_truth(asked))
                    await writer.drain()
        except asyncio.CancelledError:
            writer.transport.abort()
            return  # asyncio's own callback would log the cancellation
        finally:
            writer.close()

    async def _send(
        self, parts: Parts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for part in parts:
            if isinstance(part, Pause):
                if await _is_left(reader, part.seconds):
                    return
                continue
            writer.write(part)
            self.sent += len(part)
            await writer.drain()
            await asyncio.sleep(0)  # drain alone lets nobody else run while the client keeps up

    async def _tell_truth(self, asked: Asked) -> bytes:
        target = asked.raw.split(b" ", 2)[1].decode("latin-1")
        request = httpx.Request(
            asked.method,
            f"http://engine{target}",
            headers=asked.headers,
            content=asked.body,
        )
        found = self._honest(request)
        answer = await found if inspect.isawaitable(found) else found
        body = answer.content if answer.is_closed else answer.read()
        kind = answer.headers.get("Content-Type", "application/json")
        return reply(body, ("Content-Type", kind), status=answer.status_code)


async def _read_request(reader: asyncio.StreamReader) -> Asked | None:
    """The next request of a connection; None at its end."""
    try:
        start = await reader.readuntil(b"\r\n\r\n")
        asked = Asked(*_request_line(start), raw=start, body=b"")
        body = await reader.readexactly(int(asked.headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    return Asked(asked.method, asked.path, start + body, body)


def _request_line(start: bytes) -> tuple[str, str]:
    method, target, _ = start.decode("latin-1").split(" ", 2)
    return method, target.partition("?")[0]


async def _is_left(reader: asyncio.StreamReader, seconds: float | None) -> bool:
    """Waits; whether the client left meanwhile. What else it sends is not looked at."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await reader.read(65536):
                pass
            return True
    return False
