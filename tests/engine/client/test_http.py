"""How an engine is reached: its certificates, and nobody in between."""

from __future__ import annotations

import ssl

import httpx
import pytest
from tests.support.http_engine import HttpEngine, serve_engine

from specdeck.engine.client import http
from specdeck.engine.client.engine_client import open_client


def test_https_is_checked_and_the_certificates_are_loaded_once() -> None:
    first, second = (http.verification(url) for url in ("https://a", "HTTPS://b"))
    assert isinstance(first, ssl.SSLContext)
    assert first is second
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert first.cert_store_stats()["x509_ca"] > 0


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
