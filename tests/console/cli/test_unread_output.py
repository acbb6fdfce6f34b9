"""Commands that work on while nobody takes what they print, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.support.command import Command
from tests.support.engine_state import engine_state
from tests.support.facts_engine import FactsEngine
from tests.support.full_pipe import FullPipe
from tests.support.http_engine import HttpEngine, serve_engine

from specdeck.engine.blackbox.folder import list_boxes, open_history
from specdeck.engine.protocol.messages import PREFIX

ENDS_WITHIN_S = 20.0
"""A process that starts up and ends beside others takes a while."""


@contextmanager
def unread(
    command: Command, *words: str, stderr: int = subprocess.PIPE
) -> Iterator[tuple[subprocess.Popen[bytes], FullPipe]]:
    """A command whose stdout nobody takes."""
    pipe = FullPipe()
    process = subprocess.Popen(
        command.line(*words),
        env=command.environment,
        stdin=subprocess.DEVNULL,
        stdout=pipe.writes,
        stderr=pipe.writes if stderr == subprocess.STDOUT else stderr,
    )
    os.close(pipe.writes)
    try:
        yield process, pipe
    finally:
        process.kill()
        process.communicate()
        os.close(pipe.reads)


def wait_until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> str:
    """Ends it by a signal; what it said on stderr."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 130
    return said.decode() if said else ""


def test_record_records_on(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "blackbox"

    def count() -> int:
        for box in list_boxes(folder):
            with closing(open_history(folder, str(box.path))) as history:
                return sum(1 for _ in history.readings(0, 1e11))
        return 0

    with serve_engine(HttpEngine()) as engine:
        words = ("record", engine.url, "--interval", "0.1", "--json")
        with unread(Command(tmp_path), *words) as (process, _):
            wait_until(count)
            engine.answers[f"{PREFIX}/state"] = (
                200, engine_state(version=1, breaker="open").as_json()
            )  # fmt: skip
            before = count()
            wait_until(lambda: count() > before + 20)
            said = end(process)
    assert said.splitlines()[-1] == "specdeck: 1 line was left out of stdout"


def test_record_records_on_where_its_reader_has_gone(tmp_path: Path) -> None:
    with serve_engine(HttpEngine()) as engine:
        words = ("record", engine.url, "--interval", "0.1", "--json")
        with unread(Command(tmp_path), *words) as (process, pipe):
            os.close(pipe.reads)
            pipe.reads = os.open(os.devnull, os.O_RDONLY)
            wait_until(lambda: len(engine.asked) > 5)
            engine.answers[f"{PREFIX}/state"] = (
                200, engine_state(version=1, breaker="open").as_json()
            )  # fmt: skip
            before = len(engine.asked)
            wait_until(lambda: len(engine.asked) > before + 60)
            said = end(process)
    assert "stdout cannot be written: broken pipe" in said


def test_watch_samples_on_and_prints_them_in_their_order(tmp_path: Path) -> None:
    with serve_engine(HttpEngine()) as engine:
        words = ("watch", engine.url, "--interval", "0.05", "--json", "--count", "40")
        with unread(Command(tmp_path), *words) as (process, pipe):
            wait_until(lambda: len(engine.sent_to("/metrics")) >= 40)
            time.sleep(2.5)  # more than the end has of a watch without --count
            assert process.poll() is None
            times = [json.loads(line)["t"] for line in pipe.read().splitlines()]
            _, said = process.communicate(timeout=ENDS_WITHIN_S)
    assert (len(times), process.returncode, said) == (40, 0, b"")
    assert times == sorted(times)


def test_a_signal_ends_watch_while_it_waits_for_its_reader(tmp_path: Path) -> None:
    with serve_engine(HttpEngine()) as engine:
        for more in (("--count", "2"), ()):
            with unread(Command(tmp_path), "watch", engine.url, *more) as (process, _):
                engine.asked.clear()
                wait_until(lambda: len(engine.sent_to("/metrics")) >= 2)
                assert "left out of stdout" in end(process)


@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT], ids=["pipe", "same"])
def test_verify_goes_on_verifying(stderr: int, tmp_path: Path) -> None:
    command, gauges = Command(tmp_path), tmp_path / "gauges.prom"
    with serve_engine(FactsEngine({"engine": {"vllm": "1"}})) as engine:
        assert command("fingerprint", "pin", engine.url).returncode == 0
        words = ["fingerprint", "verify", engine.url, "--every", "0.1s"]
        words += ["--metrics-file", str(gauges)]
        with unread(command, *words, stderr=stderr) as (process, _):
            for _ in range(3):
                wait_until(gauges.exists)
                gauges.unlink()
            end(process)


def test_check_goes_on_checking(tmp_path: Path) -> None:
    gauges = tmp_path / "gauges.prom"
    with serve_engine(HttpEngine({})) as engine:  # no check can be done, and each says so
        words = ("check", engine.url, "--every", "0.1s", "--metrics-file", str(gauges))
        with unread(Command(tmp_path), *words, stderr=subprocess.STDOUT) as (process, _):
            for _ in range(3):
                wait_until(gauges.exists)
                gauges.unlink()
            end(process)


@pytest.mark.parametrize("words", [["watch"], ["fingerprint", "verify"]], ids=" ".join)
def test_a_reader_who_has_seen_enough_ends_what_prints_for_him(
    words: list[str], tmp_path: Path
) -> None:
    command = Command(tmp_path)
    more = ["--json"] if words == ["watch"] else ["--json", "--every", "0.1s"]
    with serve_engine(FactsEngine({"engine": {"vllm": "1"}})) as engine:
        assert command("fingerprint", "pin", engine.url).returncode == 0
        with command.running(*words, engine.url, *more) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())
            process.stdout.close()
            assert process.wait(ENDS_WITHIN_S) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
            process.stdout = None
