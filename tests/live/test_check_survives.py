"""What a check lives through: killed engines, busy ones, prompts and arms that are no good."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from benchmarks import check_planted

from specdeck.engine.locations import locations

WAIT_S = 300


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return check_planted.config(tmp_path_factory.mktemp("survives"))


@pytest.fixture(scope="module")
def serving(deck: Any, config: Path) -> Iterator[Any]:
    started = deck.start(config)
    yield started
    deck("stop", started.url)


def until(true: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Waits for something that another process does."""
    ends = time.monotonic() + WAIT_S
    while not true():
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < ends
        time.sleep(0.05)


def begun(deck: Any, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "specdeck", "check", *words],
        env=deck.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def written(deck: Any) -> int:
    """Prompts that the newest run in the store has."""
    path = locations({"SPECDECK_HOME": str(deck.home)}).store
    if not path.exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        rows = db.execute(
            "SELECT COUNT(DISTINCT prompt) FROM check_cases"
            " WHERE check_id = (SELECT MAX(id) FROM checks)"
        ).fetchone()
    return int(rows[0])


def test_busy_answers_of_a_proxy_are_waited_out(deck: Any, serving: Any) -> None:
    with proxied(serving.url) as proxy:
        words = ("--limit", "24", "--max-tokens", "24", "--max-mismatch", "30%")
        done = deck("check", proxy.url, *words, "--json", timeout=WAIT_S)
    data = json.loads(done.stdout)
    assert (done.returncode, data["verdict"]) == (0, "pass")
    assert (data["prompts"], data["refused"]["prompts"]) == (24, 0)
    assert {429, 503} <= set(proxy.said)


def test_a_prompt_that_is_too_long_is_refused_and_named(
    deck: Any, serving: Any, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.jsonl"
    bodies = [{"prompt": f"def f{n}():"} for n in range(10)] + [{"prompt": [301] * 5000}]
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    words = ("--prompts", str(path), "--max-tokens", "16", "--max-mismatch", "50%")
    done = deck("check", serving.url, *words, "--json", timeout=WAIT_S)
    data = json.loads(done.stdout)
    assert (done.returncode, data["prompts"], data["refused"]["prompts"]) == (0, 10, 1)
    (refused,) = data["refused"]["first"]
    assert refused["prompt"] == 11
    assert "1024" in refused["reason"]


@pytest.mark.parametrize(
    ("text", "where"), [("\n\n", ""), ('{"prompt": "a"}\n{"prompt": \n', ":2")]
)
def test_a_file_without_good_prompts_is_refused_by_its_line(
    deck: Any, serving: Any, tmp_path: Path, text: str, where: str
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    done = deck("check", serving.url, "--prompts", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}{where}:" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_second_engine_of_a_hard_check_is_compared_with_and_ended(
    deck: Any, serving: Any
) -> None:
    words = ("--hard", "--limit", "16", "--max-tokens", "24", "--max-mismatch", "50%")
    done = deck("check", serving.url, *words, "--json", timeout=2 * WAIT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    data = json.loads(done.stdout)
    assert data["arms"]["reference"]["grade"] == "hard"
    assert data["arms"]["reference"]["url"] != serving.url
    assert data["classes"]["material"] == 0
    assert [one["url"] for one in deck.engines()] == [serving.url]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_second_engine_as_well(deck: Any, serving: Any, number: int) -> None:
    check = begun(deck, serving.url, "--hard", "--limit", "200")
    try:
        until(lambda: bool(engines_of(check.pid)), check)
        pids = engines_of(check.pid)
        check.send_signal(number)
        _, said = check.communicate(timeout=WAIT_S)
    finally:
        check.kill()
    assert check.returncode == 130, said[-2000:]
    assert "Traceback" not in said
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert [one["url"] for one in deck.engines()] == [serving.url]


def engines_of(pid: int) -> list[int]:
    """The vLLM processes below `pid`."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if any("api_server" in word for word in child.cmdline()):
                found.append(child.pid)
    return found


def test_a_reference_with_another_tokenizer_is_refused(
    deck: Any, serving: Any, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    shutil.copytree(check_planted.MODELS / "target", target)
    path = target / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    ids = tokenizer["model"]["vocab"]
    ids["def"], ids["):"] = ids["):"], ids["def"]
    path.write_text(json.dumps(tokenizer))
    config = tmp_path / "other.yaml"
    text = check_planted.CONFIG.format(target=target, dtype="bfloat16")
    config.write_text(text)
    other = deck.start(config)
    try:
        done = deck("check", serving.url, "--reference", other.url, "--limit", "4")
    finally:
        deck("stop", other.url)
    assert (done.returncode, done.stdout) == (3, "")
    assert "becomes other tokens" in done.stderr


def test_a_killed_engine_is_gone_on_with_and_nothing_counts_twice(
    deck: Any, serving: Any, config: Path
) -> None:
    words = (serving.url, "--limit", "60", "--max-tokens", "48", "--json")
    check = begun(deck, *words, "--patience", "1", "--fresh")
    try:
        until(lambda: written(deck) >= 10, check)
        for child in psutil.Process(serving.record["pid"]).children(recursive=True):
            child.kill()
        psutil.Process(serving.record["pid"]).kill()
        said, talk = check.communicate(timeout=WAIT_S)
    finally:
        check.kill()
    assert check.returncode == 3, talk[-2000:]
    assert json.loads(said)["error"]["exit_code"] == 3
    kept = written(deck)
    assert 10 <= kept < 60
    deck("stop", serving.url)

    anew = deck.start(config, port=int(serving.url.rsplit(":", 1)[1]))
    assert anew.url == serving.url
    done = deck("check", *words, "--max-mismatch", "10%", timeout=2 * WAIT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"goes on after {kept} prompts" in done.stderr
    data = json.loads(done.stdout)
    assert (data["prompts"], data["noise_floor"]["pairs"], data["mismatches"]) == (60, 60, 0)
    assert data["arms"]["serving"]["tokens"] <= 60 * 2 * 48


class Proxy(ThreadingHTTPServer):
    """Hands requests on, but says 429 to every fifth and 503 to every seventh."""

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.http = httpx.Client(base_url=behind, timeout=WAIT_S, trust_env=False)
        self.asked = 0
        self.said: list[int] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def status(self) -> int | None:
        with self.lock:
            self.asked += 1
            busy = 429 if self.asked % 5 == 0 else 503 if self.asked % 7 == 0 else None
            self.said.append(busy or 200)
        return busy


class Handler(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._hand_on("GET", None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if (busy := self.server.status()) is None:
            self._hand_on("POST", body)
            return
        self.send_response(busy)
        if busy == 429:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _hand_on(self, method: str, body: bytes | None) -> None:
        kind = {"Content-Type": "application/json"}
        with self.server.http.stream(method, self.path, content=body, headers=kind) as reply:
            self.send_response(reply.status_code)
            self.send_header("Content-Type", reply.headers.get("Content-Type", ""))
            self.end_headers()
            for chunk in reply.iter_bytes():
                self.wfile.write(chunk)


@contextmanager
def proxied(behind: str) -> Iterator[Proxy]:
    """The proxy in front of an engine, while the block runs."""
    with Proxy(behind) as proxy, proxy.http:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
