"""An engine in a process of its own with a record in the registry, and a stranger at its port."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record, Registry
from specdeck.engine.paths import locations

_SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"version": "0.32.0", "asked": str(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

if sys.argv[2] == "silent":
    print(flush=True)
    sys.stdin.read()
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(flush=True)
server.serve_forever()
"""


@dataclass
class RegisteredEngine:
    """A process that answers on a port, as the registry has it."""

    popen: subprocess.Popen[str]
    record: Record
    registry: Registry

    @property
    def port(self) -> int:
        assert self.record.port is not None
        return self.record.port

    def kill(self) -> None:
        """Ends the process; its record stays behind."""
        self.popen.kill()
        self.popen.wait()


@contextmanager
def registered_engine(
    home: Path, *, token: str, port: int | None = None, silent: bool = False
) -> Iterator[RegisteredEngine]:
    """An engine called demo while the block runs; a silent one listens nowhere."""
    folders = locations({"SPECDECK_HOME": str(home)})
    port = find_port() if port is None else port
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(port), "silent" if silent else "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as popen:
        try:
            assert popen.stdout is not None
            popen.stdout.readline()
            leader, here = process.find_leader(popen.pid), process.find_host()
            assert leader is not None
            folders.tokens.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = folders.tokens / f"of-{popen.pid}"
            file.write_text(token)
            file.chmod(0o600)
            record = Record(
                name="demo", url=f"http://127.0.0.1:{port}", pid=leader.pid, born=leader.born,
                boot=leader.boot, started=1.0, log="/nowhere/log", token_file=str(file),
                ready=2.0, host=here.name, machine=here.machine, namespace=here.namespace,
            )  # fmt: skip
            registry = Registry(folders.engines)
            yield RegisteredEngine(popen, registry.add(record), registry)
        finally:
            popen.kill()


@contextmanager
def stranger(port: int) -> Iterator[bytearray]:
    """Listens on `port` while the block runs, and keeps every byte that it is sent."""
    kept = bytearray()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while chunk := connection.recv(65536):
                    kept.extend(chunk)
                    if b"\r\n\r\n" in chunk:
                        body = b'{"version": "0.32.0"}'
                        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                        connection.sendall(head + body)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield kept
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def find_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
