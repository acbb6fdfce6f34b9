"""An engine that was started for a command ends with it, with a script in the engine's place."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specdeck.engine.launch.registry import Registry
from specdeck.engine.paths import Locations, locations

_COMMAND = """
import asyncio, os, signal, sys
from pathlib import Path
from specdeck.engine.config.loader import load
from specdeck.engine.launch import launcher
from specdeck.engine.launch.launcher import Launch
from specdeck.engine.paths import locations

home = Path(sys.argv[1])
if sys.argv[2] == "killed":
    launcher.Guard = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

async def no(_):
    return False

async def main():
    launch = Launch(
        load(home / "a.yaml", accepted=frozenset({"model"})),
        locations=locations({"SPECDECK_HOME": str(home)}), answers=no,
        environment=dict(os.environ), port="auto", python=str(home / "engine"), guarded=True,
    )
    async for _ in launch.progress():
        if launch.record is not None and sys.argv[2] == "stop":
            await launch.stop(grace_s=0.0)
            print("stopped", flush=True)
            return
        if launch.record is not None:
            print("up", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    script = tmp_path / "engine"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/runs\nexec sleep 600\n")
    script.chmod(0o700)
    (tmp_path / "a.yaml").write_text("model: some/model\n")
    return locations({"SPECDECK_HOME": str(tmp_path)})


def test_it_ends_with_a_command_that_is_killed(tmp_path: Path, places: Locations) -> None:
    with _begin(tmp_path, "run") as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"up\n"
        (record,) = Registry(places.engines).records()
        assert record.life() == "running"
        command.kill()
    _wait_until(lambda: record.life() == "gone" and not Registry(places.engines).records())
    _wait_until(lambda: not record.token_path.exists())  # it goes after the record


def test_it_does_not_run_before_there_is_who_ends_it(tmp_path: Path, places: Locations) -> None:
    with _begin(tmp_path, "killed") as command:
        command.wait(60)
    (record,) = Registry(places.engines).records()
    _wait_until(lambda: record.life() == "gone")
    assert not (tmp_path / "runs").exists()


def test_a_command_that_ends_it_waits_for_nobody(tmp_path: Path, places: Locations) -> None:
    command = _begin(tmp_path, "stop")
    said, _ = command.communicate(timeout=20)
    assert said.endswith(b"stopped\n")
    assert not Registry(places.engines).records()


def _begin(home: Path, word: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, str(home), word], stdout=subprocess.PIPE
    )


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
