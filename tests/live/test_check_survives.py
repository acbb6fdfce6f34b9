"""What a check lives through: killed engines, busy ones, prompts and arms that are no good."""

import json
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest
from tests.support import planted_defect
from tests.support.command import Command
from tests.support.http_engine import serve
from tests.support.live_engine import MODELS, LiveEngine

from specdeck.engine.paths import locations

WAIT_S = 300


def until(true: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Waits for something that another process does."""
    ends = time.monotonic() + WAIT_S
    while not true():
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < ends
        time.sleep(0.05)


def written(specdeck: Command) -> int:
    """Prompts that the newest run in the store has."""
    path = locations({"SPECDECK_HOME": str(specdeck.home)}).store
    if not path.exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        rows = db.execute(
            "SELECT COUNT(DISTINCT prompt) FROM check_cases"
            " WHERE check_id = (SELECT MAX(id) FROM checks)"
        ).fetchone()
    return int(rows[0])


def test_busy_answers_of_a_proxy_are_waited_out(specdeck: Command, serving: LiveEngine) -> None:
    with proxied(serving.url) as (url, proxy):
        words = ("--limit", "24", "--max-tokens", "24", "--max-mismatch", "30%")
        done = specdeck("check", url, *words, "--json", timeout=WAIT_S)
    data = json.loads(done.stdout)
    assert (done.returncode, data["verdict"]) == (0, "pass")
    assert (data["prompts"], data["refused"]["prompts"]) == (24, 0)
    assert {429, 503} <= set(proxy.statuses)


def test_a_prompt_that_is_too_long_is_refused_and_named(
    specdeck: Command, serving: LiveEngine, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.jsonl"
    bodies = [{"prompt": f"def f{n}():"} for n in range(10)] + [{"prompt": [301] * 5000}]
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    words = ("--prompts", str(path), "--max-tokens", "16", "--max-mismatch", "50%")
    done = specdeck("check", serving.url, *words, "--json", timeout=WAIT_S)
    data = json.loads(done.stdout)
    assert (done.returncode, data["prompts"], data["refused"]["prompts"]) == (0, 10, 1)
    (refused,) = data["refused"]["first"]
    assert refused["prompt"] == 11
    assert "1024" in refused["reason"]


@pytest.mark.parametrize(
    ("text", "where"), [("\n\n", ""), ('{"prompt": "a"}\n{"prompt": \n', ":2")]
)
def test_a_file_without_good_prompts_is_refused_by_its_line(
    specdeck: Command, serving: LiveEngine, tmp_path: Path, text: str, where: str
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    done = specdeck("check", serving.url, "--prompts", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}{where}:" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.long
def test_the_second_engine_of_a_hard_check_is_compared_with_and_ended(
    specdeck: Command, serving: LiveEngine
) -> None:
    before = specdeck.urls()
    words = ("--hard", "--limit", "16", "--max-tokens", "24", "--max-mismatch", "50%")
    done = specdeck("check", serving.url, *words, "--json", timeout=2 * WAIT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    data = json.loads(done.stdout)
    assert data["arms"]["reference"]["grade"] == "hard"
    assert data["arms"]["reference"]["url"] != serving.url
    assert data["classes"]["material"] == 0
    assert specdeck.urls() == before


@pytest.mark.long
def test_weights_that_were_replaced_since_the_start_are_no_reference(
    specdeck: Command, tmp_path: Path
) -> None:
    shutil.copytree(MODELS, tmp_path / "models")
    config = planted_defect.config(tmp_path, models=tmp_path / "models")
    engine = LiveEngine.start(specdeck, config)
    try:
        before = specdeck.urls()
        weights = tmp_path / "models" / "target" / "model.safetensors"
        new = weights.with_suffix(".new")
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        new.write_bytes(content)
        new.replace(weights)  # the old one stays mapped where it is served from
        done = specdeck("check", engine.url, "--hard", "--limit", "4", timeout=2 * WAIT_S)
        assert (done.returncode, done.stdout) == (3, "")
        assert "is another target by now (model.target.weights.model.safetensors:" in done.stderr
        assert specdeck.urls() == before
    finally:
        engine.stop()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_second_engine_as_well(
    specdeck: Command, serving: LiveEngine, number: int
) -> None:
    before = specdeck.urls()
    with specdeck.running("check", serving.url, "--hard", "--limit", "200") as check:
        until(lambda: bool(engines_of(check.pid)), check)
        pids = engines_of(check.pid)
        check.send_signal(number)
        _, said = check.communicate(timeout=WAIT_S)
    assert check.returncode == 130, said[-2000:]
    assert "Traceback" not in said
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert specdeck.urls() == before


def engines_of(pid: int) -> list[int]:
    """The vLLM processes below `pid`."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if any("api_server" in word for word in child.cmdline()):
                found.append(child.pid)
    return found


@pytest.mark.long
def test_a_reference_with_another_tokenizer_is_refused(
    specdeck: Command, serving: LiveEngine, copied: LiveEngine
) -> None:
    done = specdeck("check", serving.url, "--reference", copied.url, "--limit", "4")
    assert (done.returncode, done.stdout) == (3, "")
    assert "becomes other tokens" in done.stderr


@pytest.mark.long
def test_a_killed_engine_is_gone_on_with_and_nothing_counts_twice(
    specdeck: Command, serving: LiveEngine
) -> None:
    words = (serving.url, "--limit", "60", "--max-tokens", "48", "--json")
    with specdeck.running("check", *words, "--patience", "1", "--fresh") as check:
        until(lambda: written(specdeck) >= 10, check)
        for child in psutil.Process(serving.pid).children(recursive=True):
            child.kill()
        psutil.Process(serving.pid).kill()
        said, talk = check.communicate(timeout=WAIT_S)
    assert check.returncode == 3, talk[-2000:]
    assert json.loads(said)["error"]["exit_code"] == 3
    kept = written(specdeck)
    assert 10 <= kept < 60
    serving.clear_away()

    serving.restart()
    done = specdeck("check", *words, "--max-mismatch", "10%", timeout=2 * WAIT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"resuming after {kept} prompts" in done.stderr
    data = json.loads(done.stdout)
    assert (data["prompts"], data["noise_floor"]["pairs"], data["mismatches"]) == (60, 60, 0)
    assert data["arms"]["serving"]["tokens"] <= 60 * 2 * 48


class Proxy:
    """Hands requests on, but answers 429 to every fifth and 503 to every seventh."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._asked = 0
        self._lock = threading.Lock()
        self.statuses: list[int] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and (busy := self._busy()) is not None:
            return httpx.Response(busy, headers={"Retry-After": "0"} if busy == 429 else {})
        kind = {"Content-Type": "application/json"}
        onward = self._http.build_request(
            request.method, request.url.raw_path.decode(), content=request.content, headers=kind
        )
        reply = self._http.send(onward, stream=True)
        return httpx.Response(
            reply.status_code,
            headers={"Content-Type": reply.headers.get("Content-Type", "")},
            content=reply.iter_bytes(),
        )

    def _busy(self) -> int | None:
        with self._lock:
            self._asked += 1
            busy = 429 if self._asked % 5 == 0 else 503 if self._asked % 7 == 0 else None
            self.statuses.append(busy or 200)
        return busy


@contextmanager
def proxied(behind: str) -> Iterator[tuple[str, Proxy]]:
    """The proxy in front of an engine, while the block runs; its URL, and itself."""
    with httpx.Client(base_url=behind, timeout=WAIT_S, trust_env=False) as http:
        proxy = Proxy(http)
        with serve(proxy) as url:
            yield url, proxy
