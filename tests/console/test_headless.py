"""Samples of an engine that was started here, with a small server in its place."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from specdeck.console.cli.run import print_samples
from specdeck.engine.errors import StartFailed, Unauthorized
from specdeck.engine.launch.launcher import Launch
from specdeck.engine.launch.registry import Record
from specdeck.engine.protocol.messages import PREFIX

PAGE = (Path(__file__).parents[1] / "engine/metrics/pages/speculative.txt").read_text()
KEY = "Bearer the-key"


class Handler(BaseHTTPRequestHandler):
    """vLLM without the plugin, behind an API key as vLLM has it: the metrics are open."""

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        refused = self.path.startswith(PREFIX) and self.headers.get("Authorization") != KEY
        status, body = (401, "{}") if refused else (200, PAGE)
        if not refused and self.path != "/metrics":
            status, body = 404, json.dumps({"detail": "Not Found"})
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@dataclass
class Flown:
    """What headless asks of a start."""

    url: str
    record: Record
    exit_error: Callable[[], StartFailed | None]


def flown(url: str, folder: Path, ended: Callable[[], StartFailed | None]) -> Launch:
    record = Record("demo", url, 1, 1, None, 1.0, str(folder / "log"), str(folder / "token"))
    return cast(Launch, Flown(url, record, ended))


async def test_samples_end_with_their_engine_though_another_answers(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "the-key")
    ends = iter((None, None, StartFailed("the engine ended")))
    with pytest.raises(StartFailed, match="the engine ended"):
        await print_samples(flown(url, tmp_path, lambda: next(ends)), 0.01)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["up"] for line in lines] == [True, True]


async def test_an_api_key_that_is_missing_or_wrong_is_told(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = flown(url, tmp_path, lambda: None)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with pytest.raises(Unauthorized, match="wants an API key") as missing:
        await print_samples(launch, 0.01)
    monkeypatch.setenv("VLLM_API_KEY", "another")
    with pytest.raises(Unauthorized, match="refuses this API key") as wrong:
        await print_samples(launch, 0.01)
    assert "VLLM_API_KEY" in str(missing.value.remedy)
    assert "VLLM_API_KEY" in str(wrong.value.remedy)
