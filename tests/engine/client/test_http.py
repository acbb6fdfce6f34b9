"""How an engine is reached: its certificates, and nobody in between."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.http_engine import HttpEngine, serve_engine

from specdeck.engine.client import http
from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.demo.load import open_load_client
from specdeck.engine.errors import UsageError


def test_https_is_checked_and_the_certificates_are_loaded_once() -> None:
    first, second = (http.verification(url) for url in ("https://a", "HTTPS://b"))
    assert isinstance(first, ssl.SSLContext)
    assert first is second
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert first.cert_store_stats()["x509_ca"] > 0


@pytest.mark.parametrize("named", ["nothing", ".", "empty"])
def test_certificates_that_cannot_be_read_are_wrong_usage(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / named))
    http._trusted_certificates.cache_clear()
    with pytest.raises(UsageError, match="cannot be read") as refusal:
        http.verification("https://gpu-1")
    assert refusal.value.exit_code == 2


async def test_a_proxy_of_the_environment_sees_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serve_engine(HttpEngine()) as engine:
        asked = open_client(engine.url)
        assert await asked.version() == "0.32.0"
        await asked.close()
        async with httpx.AsyncClient(base_url=engine.url) as other:
            with pytest.raises(httpx.ConnectError):
                await other.get("/version")


async def ask_engine(client: EngineClient) -> None:
    await client.version()


async def ask_load(client: httpx.AsyncClient) -> None:
    (await client.get("/version")).raise_for_status()


@pytest.mark.parametrize(
    ("open_one", "ask"),
    [(open_client, ask_engine), (partial(open_load_client, headers={}), ask_load)],
    ids=["engine", "load"],
)
async def test_a_connection_that_rested_is_not_used_again(
    open_one: Callable[[str], Any],
    ask: Callable[[Any], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM closes one after 5 s of rest, and a request that meets the closing is lost."""
    connections = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            body = b'{"version": "0.32.0"}'
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            writer.write(head % len(body) + body)
        writer.close()
        await writer.wait_closed()

    rested, clock = 0.0, time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + rested)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = open_one(url)
    await ask(client)
    assert len(connections) == 1
    rested = 4.0
    await ask(client)
    assert len(connections) == 2
    await (client.close() if isinstance(client, EngineClient) else client.aclose())
    server.close()
    await asyncio.gather(*filter(None, connections))
