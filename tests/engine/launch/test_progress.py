import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from specdeck.engine.launch.failure_reason import find_reason
from specdeck.engine.launch.progress import (
    STAGES,
    STALLED_S,
    LogTail,
    StartProgress,
    follow,
    later,
    stage,
)

LOGS = Path(__file__).parent / "logs"


async def moments(
    log: Path,
    *,
    codes: Iterator[int | None],
    answers: Iterator[bool],
    on_sleep: Callable[[], None] = lambda: None,
    tick: float = 1.0,
) -> list[StartProgress]:
    clock = count(100.0, tick)

    async def answered() -> bool:
        return next(answers)

    async def sleep(_: float) -> None:
        on_sleep()

    stream = follow(
        log,
        exit_code=lambda: next(codes),
        answers=answered,
        began=99.0,
        last_elapsed=31.0,
        clock=lambda: next(clock),
        sleep=sleep,
    )
    return [moment async for moment in stream]


def test_a_real_start_goes_through_the_stages_in_order() -> None:
    seen = ["process"]
    for line in (LOGS / "good.txt").read_text().splitlines():
        began = stage(line)
        if began is not None and later(seen[-1], began) != seen[-1]:  # type: ignore[arg-type]  # a list of stages
            seen.append(began)
    assert seen == ["process", "loading", "warming"]


async def test_an_engine_that_answers_is_ready(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text((LOGS / "good.txt").read_text())
    running: Iterator[None] = iter([None] * 9)
    seen = await moments(log, codes=running, answers=iter([False, True]))
    assert [moment.stage for moment in seen] == ["warming", "ready"]
    assert seen[-1].ready
    assert seen[-1].elapsed > seen[0].elapsed > 0
    assert seen[0].last_elapsed == 31.0
    assert seen[0].log[-1].endswith('"GET /health HTTP/1.1" 200 OK')


async def test_a_process_that_ends_gives_its_reason_and_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text((LOGS / "tensor_parallel.txt").read_text())
    seen = await moments(log, codes=iter([1]), answers=iter(()))
    assert len(seen) == 1
    assert seen[0].failed is not None
    assert seen[0].failed.startswith("Total number of attention heads")
    assert seen[0].log_path == log
    assert not seen[0].ready


async def test_a_server_that_waits_for_a_dead_core_has_failed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text((LOGS / "memory.txt").read_text())
    running: Iterator[None] = iter([None] * 99)
    seen = await moments(log, codes=running, answers=iter([False] * 99), tick=STALLED_S / 4)
    assert seen[0].failed is None
    assert seen[-1].failed is not None
    assert seen[-1].failed.startswith("Available memory on node 0")


async def test_a_stage_never_goes_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("init engine (profile, …) took 1 s\nStarting to load model x\n")
    running: Iterator[None] = iter([None] * 9)
    seen = await moments(log, codes=running, answers=iter([False, True]))
    assert seen[0].stage == "warming"


def test_a_log_is_read_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LogTail(log)
    assert tail.read() == ()
    log.write_bytes(b"one\ntw")
    assert tail.read() == ("one",)
    with open(log, "ab") as file:
        file.write(b"o\r\n\n")
    assert tail.read() == ("two", "")
    assert tail.lines == ("one", "two")


def test_a_line_without_an_end_is_neither_kept_nor_shown_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LogTail(log)
    with log.open("w") as file:
        file.write("Model loading took 3 s " + "api_key=s " * (1 << 20))
        for _ in range(12):
            file.flush()
            assert tail.read() == ()
            assert len(tail._rest) < 10_000
        file.write("end\nnext\n")
    (line, following) = tail.read()
    assert (stage(line), following) == ("warming", "next")
    shown, _ = tail.lines
    assert len(shown) <= 1024
    assert shown.startswith("Model loading took 3 s api_key=*** api_key=***")


def test_a_log_that_comes_fast_is_read_a_piece_at_a_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {n} {'x' * 90}\n" for n in range(30_000)))
    tail, found = LogTail(log), 0
    while new := tail.read():
        assert sum(map(len, new)) <= 1 << 20
        found += len(new)
    assert found == 30_000
    assert tail.lines[-1].startswith("line 29999 ")


def test_stages_are_in_the_order_of_a_start() -> None:
    assert STAGES[0] == "environment"
    assert STAGES[-1] == "ready"


def test_the_lines_of_a_log_are_shown_without_credentials(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("non-default args: {'seed': 1, 'extra': {'redis_password': 'hush'}}\n")
    tail = LogTail(log)
    tail.read()
    assert "redis_password" in tail.lines[0]
    assert "hush" not in tail.lines[0]


def test_a_pipe_in_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    tail = LogTail(tmp_path / "a.log")
    assert (tail.read(), tail.text()) == ((), "")


@pytest.mark.parametrize(
    "line", ["x" * 1_000_000, "\0" * 1_000_000, "a: error: " + "x" * 1_000_000]
)
def test_a_reason_is_one_short_line(line: str) -> None:
    assert len(find_reason(line, 1)) < 300
