"""One streamed completion over HTTP, as the tokens it brings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from specdeck.engine.errors import EngineError, NotAnEngine, Unreachable

DONE = "[DONE]"


def payload(line: str) -> str | None:
    """What a line of a server-sent event stream carries; None for the lines between.

    >>> payload('data: {"a": 1}'), payload("data: [DONE]"), payload(": ping"), payload("")
    ('{"a": 1}', '[DONE]', None, None)
    """
    return line.removeprefix("data:").strip() if line.startswith("data:") else None


def generated(event: dict[str, Any], before: int) -> int:
    """Tokens of the answer so far, after one more event of its stream.

    vLLM says so in every event when asked to; of a server that does not, an event with text is
    taken for one token.

    >>> generated({"usage": {"completion_tokens": 7}}, 4)
    7
    >>> generated({"choices": [{"text": "a"}]}, 4), generated({"choices": []}, 4)
    (5, 4)
    """
    usage = event.get("usage")
    if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
        return max(before, int(usage["completion_tokens"]))
    choices = event.get("choices")
    has_text = isinstance(choices, list) and any(c.get("text") for c in choices)
    return before + has_text


async def served_model(client: httpx.AsyncClient) -> str:
    """The name of the first model that the engine serves."""
    response = await client.get("/v1/models")
    response.raise_for_status()
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise NotAnEngine("/v1/models lists no model") from error


async def tokens(client: httpx.AsyncClient, body: dict[str, Any]) -> AsyncIterator[int]:
    """The tokens that each event of the answer added.

    Raises EngineError when the engine refuses, breaks off or answers something else.
    """
    so_far = 0
    try:
        async with client.stream("POST", "/v1/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                text = payload(line)
                if text == DONE:
                    return
                if not text:
                    continue
                event = _event(text)
                before, so_far = so_far, generated(event, so_far)
                yield so_far - before
    except httpx.HTTPError as error:
        raise Unreachable(str(error) or type(error).__name__) from error
    raise Unreachable("the answer ended before its last event")


def _event(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError as error:
        raise NotAnEngine("an event of the answer is not JSON") from error
    if not isinstance(event, dict):
        raise NotAnEngine("an event of the answer is not an object")
    if "error" in event:
        raise EngineError(f"the engine broke off: {event['error']}")
    return event
