"""Answers a Prometheus within bounds: whoever reaches the port can hold a few connections only.

prometheus_client's own server gives each connection a thread and waits for it without end, so that
a thousand silent ones take all open files of a process that has an engine to verify.
"""

from __future__ import annotations

import asyncio
import io
import re
import socket
import threading
import time
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, ClassVar, Final, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MOST_CONNECTIONS: Final = 8
"""At once; further ones are closed."""
PATIENCE_S: Final = 5.0
"""For a whole request, and for whoever takes the answer, in however many pieces."""
_READABLE_FORMAT: Final = re.compile(
    r"""
    \s* [\w.+*-]+ / [\w.+*-]+
    (?: \s*;\s* (?: version=\d{1,4}(?:\.\d{1,4}){0,3} | (?!version\s*=) [\w-]+=[\w.-]+ ) )*
    \s*
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)


def choose_readable(accept: str) -> str:
    """Of the formats that a request accepts, those that prometheus_client can read.

    It compares versions as numbers and repeats them in its answer. Without any of them left it
    answers with the plain text.

    >>> choose_readable("application/openmetrics-text; version=zzz, text/plain;version=0.0.4;q=0.3")
    ' text/plain;version=0.0.4;q=0.3'
    """
    return ",".join(one for one in accept.split(",") if _READABLE_FORMAT.fullmatch(one))


class _BoundedStream(io.RawIOBase):
    """One direction of a connection, which ends some seconds after its first use.

    A socket's own timeout begins anew with each byte.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._end: float | None = None

    def readable(self) -> bool:
        """For a buffer before it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError at the end."""
        self._keep_bound()
        return self._connection.recv_into(buffer)

    def write(self, data: Any) -> int:
        """All of it; raises TimeoutError at the end."""
        self._keep_bound()
        self._connection.sendall(data)
        return len(data)

    def _keep_bound(self) -> None:
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


class _Handler(WSGIRequestHandler):
    timeout: ClassVar[float] = PATIENCE_S

    def setup(self) -> None:
        """Bounds the request and the answer, each as a whole."""
        super().setup()
        self.rfile = io.BufferedReader(_BoundedStream(self.connection, self.timeout))
        # Nothing is held back in it, as in the one that it takes the place of.
        self.wfile = _BoundedStream(self.connection, self.timeout)  # type: ignore[assignment]

    def get_environ(self) -> dict[str, Any]:
        """The request, with no format in it that ends whoever reads it."""
        found = super().get_environ()
        found["HTTP_ACCEPT"] = choose_readable(found.get("HTTP_ACCEPT", ""))
        return found

    def get_stderr(self) -> TextIO:
        """Takes what wsgiref writes of an error, and is dropped with the request: stderr is the
        command's."""
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:  # the name it has there
        """Says nothing, for the same reason."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*args)

    def server_bind(self) -> None:
        """Binds without asking a name server who this is."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own, where one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be had
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The answer, and then the place is free again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that went away or kept silent."""


async def serve_metrics(registry: CollectorRegistry, port: int, address: str) -> None:
    """Answers on `port` of `address` for as long as the process runs.

    Raises OSError, and UnicodeError for what is no name of a host.
    """
    from prometheus_client import make_wsgi_app

    loop = asyncio.get_running_loop()  # a name server may take its time
    found = await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    family, *_, place = found[0]

    class Server(_Server):
        address_family = family

    server = make_server(str(place[0]), port, make_wsgi_app(registry), Server, _Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
