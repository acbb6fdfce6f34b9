"""How an engine is reached: its certificates, and nobody in between."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from specdeck.engine.client import http
from specdeck.engine.client.engine_client import open_client


def test_https_is_checked_and_the_certificates_are_loaded_once() -> None:
    first, second = (http.verification(url) for url in ("https://a", "HTTPS://b"))
    assert isinstance(first, ssl.SSLContext)
    assert first is second
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert first.cert_store_stats()["x509_ca"] > 0


async def test_a_proxy_of_the_environment_sees_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"version": "0.32.0"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        asked = open_client(url)
        assert await asked.version() == "0.32.0"
        await asked.close()
        async with httpx.AsyncClient(base_url=url) as other:
            with pytest.raises(httpx.ConnectError):
                await other.get("/version")
        server.shutdown()
