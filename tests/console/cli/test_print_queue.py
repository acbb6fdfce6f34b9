"""What a command prints beside its work, on files that take nothing for a while."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specdeck.console.cli.output import emit, log, print_lines
from specdeck.console.cli.print_queue import MOST_BYTES, work_beside_output

PIPE_BYTES = 1 << 16
"""That a pipe takes before anybody reads it."""


class Pipe:
    """A pipe that is somebody's stdout or stderr."""

    def __init__(self) -> None:
        self._reads, writes = os.pipe()
        self.stream = os.fdopen(writes, "w", encoding="utf-8")
        self._read = bytearray()

    def read(self) -> None:
        """Takes what is written until the writing end is closed, in a thread."""

        def take() -> None:
            while chunk := os.read(self._reads, 1 << 16):
                self._read += chunk

        self._thread = threading.Thread(target=take)
        self._thread.start()

    def lines(self) -> list[str]:
        """All that was written."""
        self.stream.close()
        self._thread.join()
        return self._read.decode().splitlines()

    def leave(self) -> None:
        """Reads no more."""
        os.close(self._reads)


@contextmanager
def stdout_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Has stdout be a pipe within; to be called by the test, as pytest has its own in fixtures."""
    made = Pipe()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", made.stream)
        yield made
    made.stream.close()


async def until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


async def test_work_goes_on_while_nobody_takes_what_it_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with stdout_pipe(monkeypatch) as pipe:

        async def work() -> int:
            for number in range(3000):
                emit({"number": number, "long": "x" * 100})
            pipe.read()
            return 7

        assert await work_beside_output(work()) == 7
        assert [json.loads(line)["number"] for line in pipe.lines()] == list(range(3000))
        assert capsys.readouterr().err == ""


async def test_the_oldest_lines_are_left_out_and_counted_when_the_reader_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with stdout_pipe(monkeypatch) as pipe:
        said: list[str] = []

        def has_said() -> bool:
            said.extend(capsys.readouterr().err.splitlines())
            return bool(said)

        async def work() -> int:
            for number in range(2 * MOST_BYTES // 1000):
                emit({"number": number, "long": "x" * 1000})
            pipe.read()
            await until(has_said)
            emit({"number": -1})
            return 0

        await work_beside_output(work())
        numbers = [json.loads(line)["number"] for line in pipe.lines()]
        assert numbers[0] == 0  # the pipe had these already
        assert numbers[-2:] == [2 * MOST_BYTES // 1000 - 1, -1]
        assert numbers[:-1] == sorted(numbers[:-1])
        missing = 2 * MOST_BYTES // 1000 - (len(numbers) - 1)
        assert said == [f"specdeck: stdout is read again: {missing} lines were left out"]


async def test_lines_on_one_terminal_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with stdout_pipe(monkeypatch) as pipe:
        both = os.fdopen(os.dup(pipe.stream.fileno()), "w", encoding="utf-8")
        monkeypatch.setattr("sys.stderr", both)

        async def work() -> None:
            for number in range(2000):
                (print_lines if number % 3 else log)(f"{number} {'x' * 100}")
            pipe.read()

        await work_beside_output(work())
        both.close()
        assert [int(line.split()[0]) for line in pipe.lines()] == list(range(2000))


async def test_the_end_waits_a_while_for_who_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with stdout_pipe(monkeypatch):

        async def work() -> int:
            for _ in range(PIPE_BYTES // 1000 + 10):
                print_lines("x" * 999)
            return 0

        began = time.monotonic()
        await work_beside_output(work(), patience_s=0.2)
        assert 0.2 <= time.monotonic() - began < 10
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("lines were left out of stdout")


async def test_a_reader_who_has_gone_ends_work_that_is_for_him(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stdout_pipe(monkeypatch) as pipe:
        pipe.leave()

        async def work() -> int:
            emit({"number": 1})
            await asyncio.sleep(600)
            return 0

        with pytest.raises(BrokenPipeError):
            await work_beside_output(work(), ends_at=(OSError,))


async def test_what_cannot_be_written_any_more_is_told_to_who_prints_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stdout_pipe(monkeypatch) as pipe:
        pipe.leave()

        async def work() -> int:
            emit({"number": 1})
            try:
                await asyncio.sleep(600)
            finally:
                with pytest.raises(BrokenPipeError):
                    emit({"number": 2})
            return 0

        with pytest.raises(BrokenPipeError):
            await work_beside_output(work(), ends_at=(BrokenPipeError,))


async def test_a_place_that_has_no_room_is_told_once_and_ends_no_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        for number in range(5):
            emit({"number": number})
        return 0

    with os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert await work_beside_output(work(), ends_at=(BrokenPipeError,)) == 0
        with pytest.raises(OSError, match="No space left") as failed:
            await work_beside_output(work(), ends_at=(OSError,))
    assert failed.value.errno == errno.ENOSPC
    assert capsys.readouterr().err.splitlines() == [
        "specdeck: stdout cannot be written: no space left on device; what is printed is left out "
        "meanwhile",
        "specdeck: 5 lines were left out of stdout",
    ]


async def test_a_reader_who_comes_back_is_told_what_he_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    said: list[str] = []
    reads = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    def has_said() -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return bool(said)

    async def work() -> None:
        emit({"number": 1})
        await until(has_said)
        emit({"number": 2})
        nonlocal reads
        reads = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        said.clear()
        emit({"number": 3})
        await until(has_said)

    with os.fdopen(os.open(fifo, os.O_WRONLY), "w", encoding="utf-8") as stream:
        os.close(reads)
        monkeypatch.setattr("sys.stdout", stream)
        await work_beside_output(work())
    assert json.loads(os.read(reads, 4096).splitlines()[-1])["number"] == 3
    os.close(reads)
    (line,) = said
    assert line.startswith("specdeck: stdout is written again: ")


CUT = """
import asyncio, resource, sys
from specdeck.console.cli.output import emit
from specdeck.console.cli.print_queue import work_beside_output

async def work():
    for number in range(4):
        if number == 3:
            await asyncio.sleep(0.5)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        emit({"number": number, "long": "x" * 1000})

resource.setrlimit(resource.RLIMIT_FSIZE, (1_500, 10_000))
asyncio.run(work_beside_output(work()))
"""


def test_a_line_that_could_not_be_finished_is_finished_when_there_is_room(tmp_path: Path) -> None:
    with (tmp_path / "samples.jsonl").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-c", CUT], stdout=file, stderr=subprocess.PIPE, text=True,
            check=True, timeout=60,
        )  # fmt: skip
    lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [0, 1, 3]
    assert done.stderr.splitlines() == [
        "specdeck: stdout cannot be written: file too large; what is printed is left out meanwhile",
        "specdeck: stdout is written again: 1 line was left out",
    ]


async def test_without_memory_for_a_thread_lines_are_written_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stdout_pipe(monkeypatch) as pipe:

        class NoThread(threading.Thread):
            def start(self) -> None:
                raise RuntimeError("can't start new thread")

        pipe.read()
        monkeypatch.setattr("specdeck.console.cli.print_queue.threading.Thread", NoThread)

        async def work() -> None:
            print_lines("one")

        await work_beside_output(work())
        monkeypatch.undo()
        assert pipe.lines() == ["one"]
