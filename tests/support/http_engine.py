"""Engines over HTTP that are a function or a table; in memory, or at an address of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

import httpx

from specdeck.engine.protocol.messages import PREFIX
from tests.support.engine_state import engine_state
from tests.support.pages import recorded_page

Respond = Callable[[httpx.Request], httpx.Response]
Answer = tuple[int, object] | Respond
"""A status and a body, which is a text or goes out as JSON; or what depends on the request."""


class HttpEngine:
    """Answers from a table of paths, and keeps what it was asked.

    Without a table it is vLLM with the plugin, in front of a recorded page.
    """

    def __init__(self, answers: dict[str, Answer] | None = None) -> None:
        self.url = "http://engine"
        """Where it answers; `serve_engine` puts another address here."""
        self.asked: list[httpx.Request] = []
        self.ended = threading.Event()
        """Set when it is served no longer; an answer that never comes waits for it."""
        usual: dict[str, Answer] = {
            "/version": (200, {"version": "0.32.0"}),
            "/v1/models": (200, {"data": [{"id": "demo"}]}),
            "/metrics": (200, recorded_page("speculative")),
            f"{PREFIX}/state": (200, engine_state().as_json()),
            f"{PREFIX}/control": acknowledge,
        }
        self.answers = usual if answers is None else answers

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        found = self.answers.get(request.url.path, (404, {"detail": "Not Found"}))
        return found(request) if callable(found) else answer(*found)

    def sent_to(self, end: str) -> list[httpx.Request]:
        """What was asked at a path with this end, in order."""
        return [request for request in self.asked if request.url.path.endswith(end)]


def acknowledge(request: httpx.Request) -> httpx.Response:
    """The plugin's answer to a change that it makes."""
    was = {"k": 5, "mode": "speculate", "policy": "fixed", "breaker": "closed"}
    turned = {name: value for name, value in json.loads(request.content).items() if name in was}
    before = {name: was[name] for name in turned}
    return answer(200, {"before": before, "applied": turned, "version": 1, "step": 100})


def answer(status: int, body: object) -> httpx.Response:
    """A text as it is, anything else as JSON."""
    if isinstance(body, str):
        return httpx.Response(status, text=body)
    return httpx.Response(status, json=body)


@contextmanager
def serve(respond: Respond) -> Iterator[str]:
    """The URL on this machine at which `respond` answers while the block runs.

    A connection breaks off where it raises an error of httpx.
    """
    with _Server(respond) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


Engine = TypeVar("Engine", bound=HttpEngine)


@contextmanager
def serve_engine(engine: Engine) -> Iterator[Engine]:
    """The engine at an address of its own while the block runs."""
    with serve(engine) as engine.url:
        try:
            yield engine
        finally:
            engine.ended.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Beyond a shorter one an attempt to connect is lost, and the next comes a second later."""

    def __init__(self, respond: Respond) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = httpx.Request(
            self.command, f"http://engine{self.path}", headers=[*self.headers.items()], content=body
        )
        # Whoever asked may have been interrupted; an engine may break off, too.
        with suppress(ConnectionError, httpx.TransportError):
            self._send(self.server.respond(request))

    do_POST = do_PUT = do_GET

    def _send(self, reply: httpx.Response) -> None:
        self.send_response(reply.status_code)
        for name, value in reply.headers.items():
            if name != "transfer-encoding":  # the end of the connection ends a stream
                self.send_header(name, value)
        self.end_headers()
        # What was given whole was read when it was made.
        for chunk in (reply.content,) if reply.is_closed else reply.iter_raw():
            self.wfile.write(chunk)
