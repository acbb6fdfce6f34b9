"""Cookies are neither read nor sent: an engine decides how many there are, and how long."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http.cookiejar import CookieJar
from itertools import count
from typing import Any

import pytest
from tests.support.lying_engine import Asked, LyingEngine, Part, head

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.client.webhook import Webhook
from specdeck.engine.demo.load import open_load_client

WORDS = ",".join("a" for _ in range(2_000))
"""Of 45,000 such words, which a head may have, the library's parser makes seconds."""


async def ask_engine(url: str) -> None:
    """Two looks of one client at an engine."""
    client = open_client(url)
    try:
        for _ in range(2):
            await client.version()
    finally:
        await client.close()


async def put_load_on(url: str) -> None:
    """Two requests of a load's client."""
    async with open_load_client(url, headers={}) as client:
        for _ in range(2):
            await client.get("/version")


async def post_to_webhook(url: str) -> None:
    """An event to a webhook, which is posted again since it is refused."""

    async def sleep(_: float) -> None:
        pass

    await Webhook(Secret(f"{url}/version"), sleep=sleep).post({"kind": "drift"})


@pytest.mark.parametrize("ask", [ask_engine, put_load_on, post_to_webhook])
async def test_a_cookie_is_neither_read_nor_sent_again(
    ask: Callable[[str], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    make = CookieJar.make_cookies

    def make_and_note(self: CookieJar, *answered: Any) -> Any:
        read.append(answered)
        return make(self, *answered)

    monkeypatch.setattr(CookieJar, "make_cookies", make_and_note)
    number = count()

    def bake(asked: Asked) -> tuple[Part, ...]:
        body = json.dumps({"version": "0.32.0"}).encode()
        own = ("Set-Cookie", f"c{next(number)}={'v' * 3_000}"), ("Set-Cookie2", WORDS)
        ends = ("Content-Length", str(len(body))), ("Connection", "close")
        return (head(*ends, *own, status=503 if asked.method == "POST" else 200) + body,)

    with LyingEngine({"/version": bake}) as engine:
        await ask(engine.url)
        assert len(engine.asked) > 1
        assert not [asked for asked in engine.asked if "cookie" in asked.headers]
    assert read == []
