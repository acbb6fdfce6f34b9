"""The events of a streamed answer, within its bounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from specdeck.engine.client.bounds import AnswerBound, exceeded
from specdeck.engine.client.secret import hide_echoes, is_echoed
from specdeck.engine.errors import NotAnEngine, Unreachable
from specdeck.engine.protocol.codec import NotJson, loads


async def read_events(
    parts: AsyncIterator[bytes], bound: AnswerBound, url: str
) -> AsyncGenerator[dict[str, Any], None]:
    """The objects that the events of a stream carry, until the one that ends it.

    Lines are cut by hand: httpx's cost more than all else of an answer. Raises NotAnEngine for
    a stream beyond `bound` or of anything else, Unreachable for one that breaks off.
    """
    rest, size, events, number = bytearray(), 0, 0, 0
    async for part in parts:
        size += len(part)
        number += 1
        if size > bound.size or number > bound.parts:
            raise exceeded(bound, url)
        rest += part
        if b"\n" not in part:
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            text = line[5:].strip()
            if text == b"[DONE]":
                return
            events += 1
            if events > bound.events:
                raise NotAnEngine(f"{url} streams more than {bound.events} events of one answer")
            if text:
                yield _parse_event(bytes(text), url)
    raise Unreachable(f"{url} closed the connection during an answer")


def _parse_event(text: bytes, url: str) -> dict[str, Any]:
    try:
        event = loads(text)
    except NotJson as error:
        raise NotAnEngine(f"{url} streams something that is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise NotAnEngine(f"{url} streams an unexpected response: not a vLLM server")
    return {**hide_echoes(event)} if is_echoed(text) else event
