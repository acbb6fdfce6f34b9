"""The JSON body of a request, read within bounds.

An API server serves every client's requests in one loop: it neither buffers what somebody may
send for ever, nor waits for it, nor reads numbers and depths that cost more than they say.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

from specdeck.engine.plugin.reply import nonsense

MOST_BYTES = 64 * 1024
PATIENCE_S = 5.0
"""For the whole of a body."""

_LONGEST_NUMBER = 20
"""Digits of a whole number; Python's own limit makes an error of thousands."""


async def read_json(request: Any, *, patience_s: float = PATIENCE_S) -> Any:
    """What the body of Starlette's `request` says; raises Refusal on more than a change takes."""
    return parse_json(await _read(request, patience_s))


async def _read(request: Any, patience_s: float) -> bytes:
    from starlette.requests import ClientDisconnect

    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:_LONGEST_NUMBER]) > MOST_BYTES:
        raise _too_long()
    body = bytearray()
    try:
        async with asyncio.timeout(patience_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise _too_long()
    except TimeoutError:
        raise nonsense(f"the body did not arrive within {patience_s:g} s") from None
    except ClientDisconnect:
        raise nonsense("the client went away") from None
    return bytes(body)


def _too_long() -> Exception:
    return nonsense(f"the body is longer than {MOST_BYTES // 1024} KB")


def parse_json(body: bytes) -> Any:
    """What `body` says; raises Refusal where it is not JSON, or is beyond any sense.

    >>> parse_json(b'{"k": 3}')
    {'k': 3}
    >>> parse_json(b"[" * 10_000)
    Traceback (most recent call last):
    specdeck.engine.plugin.reply.Refusal: the body is not JSON
    """
    try:
        return json.loads(body, parse_int=_parse_whole, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise nonsense("the body is not JSON") from None


def _parse_whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    """NaN and the infinities are Python's, not JSON's."""
    raise ValueError(f"{name} is not JSON")
