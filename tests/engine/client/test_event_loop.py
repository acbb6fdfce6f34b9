"""What hangs in a thread holds nothing up: neither other threads nor the end."""

import asyncio
import errno
import inspect
import threading
import time
from pathlib import Path

import pytest

from specdeck.engine.client import event_loop
from specdeck.engine.errors import NoMemory


def test_a_thread_that_hangs_does_not_hold_the_end_up() -> None:
    hangs = threading.Event()

    async def work() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.to_thread(hangs.wait)
        return 3

    began = time.monotonic()
    assert event_loop.run(work()) == 3
    assert time.monotonic() - began < 60
    hangs.set()


def test_threads_that_hang_leave_room_for_others() -> None:
    hangs = threading.Event()

    async def work() -> int:
        waiting = [asyncio.create_task(asyncio.to_thread(hangs.wait)) for _ in range(100)]
        found = await asyncio.wait_for(asyncio.to_thread(int, "7"), 60)
        hangs.set()
        await asyncio.gather(*waiting)
        return found

    assert event_loop.run(work()) == 7


def test_what_is_written_in_a_thread_is_finished(tmp_path: Path) -> None:
    begun = threading.Event()

    def write() -> None:
        begun.set()
        time.sleep(0.2)
        (tmp_path / "pin").write_text("whole")

    async def work() -> None:
        writing = asyncio.create_task(asyncio.to_thread(write))
        await asyncio.to_thread(begun.wait)
        writing.cancel()

    event_loop.run(work())
    assert (tmp_path / "pin").read_text() == "whole"


def test_a_thread_that_cannot_be_started_is_want_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(NoMemory, match="cannot start another thread"):
        event_loop.LooseThreads().submit(int, "7")


def test_what_fails_in_a_thread_is_raised() -> None:
    with pytest.raises(ValueError, match="seven"):
        event_loop.run(asyncio.to_thread(int, "seven"))


def test_work_that_cannot_be_begun_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or Python warns of it on stderr, beside the one line that says why."""

    def refuse() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    async def say() -> int:
        return 0

    work = say()
    monkeypatch.setattr(asyncio.events, "new_event_loop", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        event_loop.run(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
