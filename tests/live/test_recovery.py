"""What is left when things are killed: nothing, or something that says what it is."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.support.command import PATIENCE_S, Command
from tests.support.live_engine import MODELS, LiveEngine


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


def following(watch: "subprocess.Popen[str]", **wanted: Any) -> dict[str, Any]:
    """The first sample that has these values."""
    assert watch.stdout is not None
    for line in watch.stdout:
        sample: dict[str, Any] = json.loads(line)
        if all(sample[key] == value for key, value in wanted.items()):
            return sample
    raise AssertionError(f"no sample with {wanted}")


@pytest.mark.long
def test_an_engine_that_is_stopped_killed_and_started_again(
    specdeck: Command, copied: LiveEngine
) -> None:
    pid, url = copied.pid, copied.url
    with specdeck.running("watch", url, "--json", "--interval", "0.5") as watch:
        following(watch, up=True)
        os.kill(pid, signal.SIGSTOP)
        down = following(watch, up=False)
        assert down["tokens_per_second"] is None
        os.kill(pid, signal.SIGCONT)
        assert following(watch, up=True)["restarted"] is False

        os.kill(pid, signal.SIGKILL)
        following(watch, up=False)
        # The leader is gone; whatever it left behind is ended with `stop`.
        copied.clear_away()
        assert session(pid) == []

        copied.restart()
        sample = following(watch, up=True)
        assert sample["restarted"] is True
        assert sample["tokens_per_second"] is None


@pytest.mark.long
def test_stop_leaves_no_process_port_or_token(specdeck: Command, copied: LiveEngine) -> None:
    (record,) = [one for one in specdeck.engines() if one["url"] == copied.url]
    stopped = specdeck("stop", copied.url)
    assert stopped.returncode == 0, stopped.stderr
    assert session(record["pid"]) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(copied.url)
    assert not list(Path(specdeck.home).rglob(f"*{record['name']}*.token"))
    assert copied.url not in specdeck.urls()
    assert specdeck("stop", copied.url).returncode == 2


def test_a_start_that_fails_says_why_and_leaves_nothing(specdeck: Command, tmp_path: Path) -> None:
    config = tmp_path / "broken.yaml"
    config.write_text(f"model: {MODELS / 'target'}\nmax_model_len: 100000000\n")
    before = specdeck.engines()
    failed = specdeck("run", str(config), "--headless", "--port", "0", timeout=200)
    assert failed.returncode == 3
    assert "max_model_len" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert specdeck.engines() == before


def test_a_killed_launcher_leaves_an_engine_that_is_found(
    specdeck: Command, tmp_path: Path
) -> None:
    config = tmp_path / "alone.yaml"
    config.write_text(f"model: {MODELS / 'target'}\nblock_size: 32\nmax_model_len: 512\n")
    before = specdeck.urls()
    launcher = subprocess.Popen(
        specdeck.line("run", str(config), "--headless", "--port", "0"),
        env=specdeck.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ends = time.monotonic() + PATIENCE_S
    while not (new := [one for one in specdeck.engines() if one["url"] not in before]):
        assert time.monotonic() < ends
    launcher.kill()
    launcher.wait()
    (record,) = new
    assert record["url"] in specdeck.urls()
    assert specdeck("stop", record["url"]).returncode == 0
    assert session(record["pid"]) == []
