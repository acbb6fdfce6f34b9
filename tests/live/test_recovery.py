"""What is left when things are killed: nothing, or something that says what it is."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

TARGET = Path(__file__).parents[2] / "sample_configs" / "models" / "target"


@pytest.fixture(scope="module")
def victim(deck: Any) -> Iterator[Any]:
    """A second engine, to be killed."""
    started = deck.start()
    yield started
    deck("stop", started.url)


def session(pid: int) -> list[int]:
    """The processes of the session that `pid` leads."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


@contextmanager
def watching(deck: Any, url: str) -> "Iterator[subprocess.Popen[str]]":
    """`specdeck watch`, ended with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "specdeck", "watch", url, "--json", "--interval", "0.5"],
        env=deck.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as watch:
        try:
            yield watch
        finally:
            watch.terminate()


def following(watch: "subprocess.Popen[str]", **wanted: Any) -> dict[str, Any]:
    """The first sample that has these values."""
    assert watch.stdout is not None
    for line in watch.stdout:
        sample: dict[str, Any] = json.loads(line)
        if all(sample[key] == value for key, value in wanted.items()):
            return sample
    raise AssertionError(f"no sample with {wanted}")


def test_an_engine_that_is_stopped_killed_and_started_again(deck: Any, victim: Any) -> None:
    pid, url = victim.record["pid"], victim.url
    with watching(deck, url) as watch:
        following(watch, up=True)
        os.kill(pid, signal.SIGSTOP)
        down = following(watch, up=False)
        assert down["tokens_per_second"] is None
        os.kill(pid, signal.SIGCONT)
        assert following(watch, up=True)["restarted"] is False

        os.kill(pid, signal.SIGKILL)
        following(watch, up=False)
        # The leader is gone; whatever it left behind is ended with `stop`.
        deck("stop", url)
        assert session(pid) == []

        anew = deck.start(port=int(url.rsplit(":", 1)[1]))
        assert anew.url == url
        sample = following(watch, up=True)
        assert sample["restarted"] is True
        assert sample["tokens_per_second"] is None


def test_stop_leaves_no_process_port_or_token(deck: Any, victim: Any) -> None:
    (record,) = [one for one in deck.engines() if one["url"] == victim.url]
    stopped = deck("stop", victim.url)
    assert stopped.returncode == 0, stopped.stderr
    assert session(record["pid"]) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(victim.url)
    assert not list(Path(deck.home).rglob(f"*{record['name']}*.token"))
    assert victim.url not in [one["url"] for one in deck.engines()]
    assert deck("stop", victim.url).returncode == 3


def test_a_start_that_fails_says_why_and_leaves_nothing(deck: Any, tmp_path: Path) -> None:
    config = tmp_path / "broken.yaml"
    config.write_text(f"model: {TARGET}\nmax_model_len: 100000000\n")
    before = deck.engines()
    failed = deck("run", str(config), "--headless", "--port", "0", timeout=200)
    assert failed.returncode == 3
    assert "max_model_len" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert deck.engines() == before


def test_a_killed_launcher_leaves_an_engine_that_is_found(deck: Any, tmp_path: Path) -> None:
    config = tmp_path / "alone.yaml"
    config.write_text(f"model: {TARGET}\nblock_size: 32\nmax_model_len: 512\n")
    before = {one["url"] for one in deck.engines()}
    launcher = subprocess.Popen(
        [sys.executable, "-m", "specdeck", "run", str(config), "--headless", "--port", "0"],
        env=deck.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ends = time.monotonic() + 60
    while not (new := [one for one in deck.engines() if one["url"] not in before]):
        assert time.monotonic() < ends
    launcher.kill()
    launcher.wait()
    (record,) = new
    assert record["url"] in [one["url"] for one in deck.engines()]
    assert deck("stop", record["url"]).returncode == 0
    assert session(record["pid"]) == []
