"""The end of an engine that takes its time, and is not waited for; a stub serves."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command import Command
from tests.support.stub_vllm import write_stub_config
from tests.support.terminal import Terminal

SAID = (
    "specdeck: interrupted: stub may still run: `specdeck ps` tells, `specdeck stop stub` ends it"
)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    one = Command(tmp_path / "home")
    yield one
    for engine in one.engines():
        one("stop", str(engine["name"]))


def test_ctrl_c_of_a_stop_says_what_the_engine_may_do(command: Command, tmp_path: Path) -> None:
    config = write_stub_config(tmp_path, lingers_s=6.0)
    assert command("run", str(config), "--detach", "--port", "auto").returncode == 0
    stop = subprocess.Popen(
        command.line("stop", "stub"), env=command.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert stop.stderr is not None
    assert stop.stderr.readline().startswith("stub: waiting for 1 process")
    stop.send_signal(signal.SIGINT)
    out, said = stop.communicate(timeout=60)
    assert (stop.returncode, out, said) == (130, "", f"{SAID}\n")


def test_ctrl_c_of_the_end_that_a_console_left_behind_is_one_line(
    command: Command, tmp_path: Path
) -> None:
    config = write_stub_config(tmp_path, lingers_s=6.0)
    words = command.line("run", str(config), "--port", "auto")
    console = Terminal(words, command.environment, "100x30")
    try:
        console.until(lambda screen: "armed" in screen and "tokens/s" in screen)
        console.press("q")
        console.until(lambda screen: "Stop it?" in screen)
        console.press("s")
        console.until(lambda screen: "stopping stub" in screen)
        began = len(console.raw)
        console.process.send_signal(signal.SIGINT)
        console.process.wait(60)
        console.drain(0.5)
        assert console.process.returncode == 130
        assert console.raw[began:].decode().split("\r\n") == [SAID, ""]
    finally:
        console.close()
