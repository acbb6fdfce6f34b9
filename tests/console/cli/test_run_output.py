"""`run` without a console, where what it prints cannot be written; a stub serves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.command import Command
from tests.support.full_pipe import FullPipe
from tests.support.stub_vllm import write_stub_config


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "home")


def open_full() -> int:
    """A disk without room."""
    return os.open("/dev/full", os.O_WRONLY)


def open_unread() -> int:
    """A pipe whose reader has gone."""
    reads, writes = os.pipe()
    os.close(reads)
    return writes


@contextmanager
def started(
    command: Command, folder: Path, stdout: int, *words: str
) -> Iterator[subprocess.Popen[str]]:
    """`run` of a stub with such a stdout; interrupted at the end."""
    line = command.line("run", str(write_stub_config(folder)), "--port", "auto", *words)
    process = subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True,
        env=command.environment,
    )  # fmt: skip
    os.close(stdout)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """The next line on stderr with these words."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return line.rstrip("\n")
    raise AssertionError(f"{process.wait()}: {''.join(said)}")


@pytest.mark.parametrize(
    ("place", "reason"),
    [(open_full, "no space left on device"), (open_unread, "broken pipe")],
    ids=["full", "unread"],
)
def test_an_engine_serves_on_where_its_samples_cannot_be_written(
    place: Callable[[], int], reason: str, command: Command, tmp_path: Path
) -> None:
    with started(command, tmp_path, place(), "--headless") as process:
        assert read_until(process, "cannot be written") == (
            f"specdeck: stdout cannot be written: {reason}; what is printed is left out meanwhile"
        )
        (engine,) = command.engines()
        assert httpx.get(f"{engine['url']}/health").status_code == 200
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cannot be written" not in said
    assert "left out of stdout" in said
    assert command.engines() == []


@pytest.mark.parametrize(
    ("place", "reason", "code"),
    [(open_full, "no space left on device", 2), (open_unread, "broken pipe", 0)],
    ids=["full", "unread"],
)
def test_an_engine_whose_record_cannot_be_printed_is_told_of_beside_it(
    place: Callable[[], int], reason: str, code: int, command: Command, tmp_path: Path
) -> None:
    with started(command, tmp_path, place(), "--detach") as process:
        _, said = process.communicate(timeout=60)
        (engine,) = command.engines()
        try:
            where = f"{engine['url']} all the same: `specdeck stop stub`"
            assert (
                f"specdeck: the record of stub cannot be printed ({reason}), and it runs at {where}"
            ) in said.splitlines()
            assert process.returncode == code
        finally:
            assert command("stop", "stub").returncode == 0


def test_where_a_detached_engine_runs_is_told_though_nobody_takes_its_record(
    command: Command, tmp_path: Path
) -> None:
    pipe = FullPipe()
    with started(command, tmp_path, pipe.writes, "--detach") as process:
        try:
            assert read_until(process, "runs at").endswith(": `specdeck stop stub`")
        finally:
            assert command("stop", "stub").returncode == 0
            os.close(pipe.reads)
