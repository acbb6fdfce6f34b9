"""A small server in vLLM's place, for commands that start an engine: it is ready in a second."""

from __future__ import annotations

from pathlib import Path

import yaml

MODEL = Path(__file__).parents[2] / "sample_configs" / "models" / "target"

SERVER = """
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWERS = {
    "/version": b'{"version": "0.32.0"}',
    "/health": b"{}",
    "/v1/models": b'{"data": [{"id": "stub"}]}',
    "/metrics": b"# HELP nothing\\n",
}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = ANSWERS.get(self.path, b"{}")
        self.send_response(200 if self.path in ANSWERS else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

def end_late(*_):
    threading.Timer(LINGERS_S, lambda: os._exit(0)).start()

if LINGERS_S:
    signal.signal(signal.SIGTERM, end_late)
port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def write_stub_config(folder: Path, *, lingers_s: float = 0.0) -> Path:
    """A config in `folder` whose engine is such a server; it ends so long after it is asked to."""
    package = folder / "stub" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for one in (package, package.parent, package.parent.parent):
        (one / "__init__.py").touch()
    (package / "api_server.py").write_text(f"LINGERS_S = {lingers_s}\n{SERVER}")
    config = folder / "stub.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "model": str(MODEL),
                "served_model_name": ["stub"],
                "environment": {"PYTHONPATH": str(folder / "stub"), "HF_HUB_OFFLINE": "1"},
            }
        )
    )
    return config
