"""Signals end a command's work in order, whatever the command is."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from specdeck.console.app import Console
from specdeck.console.cli.common import finish, open_user_store, run_console, until_signal
from specdeck.console.cli.crash import Crash
from specdeck.console.cli.first_and_last import INTERRUPTED
from specdeck.console.cli.output import print_lines
from specdeck.console.cli.signals import SIGNALS
from specdeck.engine.client import event_loop
from specdeck.engine.errors import NoMemory
from specdeck.engine.paths import locations
from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.database import Store
from specdeck.engine.store.retention import SETTLED_S


async def stopped(number: signal.Signals, *, tidied: Exception | None = None) -> int:
    """Work that a signal ends, and that may fail at tidying up."""
    os.kill(os.getpid(), number)
    try:
        await asyncio.Event().wait()
    finally:
        if tidied is not None:
            raise tidied
    return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_work_and_how_things_stand_is_said(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await until_signal(stopped(number), on_interrupt=lambda: "k is 3")
    assert code == INTERRUPTED
    assert capsys.readouterr().err == "specdeck: interrupted: k is 3\n"


async def test_work_that_ends_by_itself_has_its_own_code() -> None:
    async def work() -> int:
        return 1

    assert await until_signal(work(), on_interrupt=lambda: "never said") == 1


async def test_what_fails_at_tidying_up_is_not_lost() -> None:
    with pytest.raises(OSError, match="k is not given back"):
        await until_signal(stopped(signal.SIGTERM, tidied=OSError("k is not given back")))


@pytest.mark.parametrize(("settings", "left"), [("", 1), ("retention_days: 0", 2), ("{", 2)])
def test_the_users_store_forgets_after_the_days_of_the_settings(
    settings: str, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.yaml").write_text(settings)
    now = time.time()
    with Store(locations(os.environ).store) as store:
        for days in (1, 100):
            AuditLog(store).add(
                Action(now - days * 86_400, "ada", "http://h", "prod", {}, {"k": 3}, "undo")
            )
    with open_user_store() as store:
        assert len(AuditLog(store).actions()) == 2  # the clock may be wrong
    monkeypatch.setattr(time, "time", lambda: now + SETTLED_S + 60)
    with open_user_store() as store:
        assert len(AuditLog(store).actions()) == left


class FloodedConsole:
    """Gets a signal while more keys wait than the event loop's pipe has room for."""

    crash = None
    recorder = None
    unanswered: tuple[str, ...] = ()
    parting: tuple[str, ...] = ()
    return_code = 0
    is_leaving = False

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def exit(self, result: str) -> None:
        self.ended.set()

    async def finish_work(self, on_wait: Callable[[str], None]) -> None:
        return

    async def run_async(self) -> None:
        for _ in range(5000):
            asyncio.get_running_loop().call_soon_threadsafe(lambda: None)
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(30):
            await self.ended.wait()


async def test_a_signal_that_comes_while_something_is_stopped_waits_for_that() -> None:
    stopped: list[str] = []

    async def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        stopped.append("all of it")

    async def work() -> int:
        await finish(stop())
        raise AssertionError("what comes after it is cancelled")

    assert await until_signal(work()) == 130
    assert stopped == ["all of it"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_signal_ends_output_that_nobody_reads(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.openpty() if is_terminal else os.pipe()

    async def say_much() -> int:
        while True:
            print_lines("nobody reads this" * 50)
            await asyncio.sleep(0)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    after = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with open(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        # It would be for ever.
        rescue = threading.Timer(10, lambda: os.close(reading))
        after.start()
        rescue.start()
        began = time.monotonic()
        try:
            assert asyncio.run(until_signal(say_much())) == INTERRUPTED
        finally:
            rescue.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)
        assert time.monotonic() - began < 8
    os.close(reading)


def test_a_line_is_whole_where_somebody_reads_when_a_signal_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    found: list[bytes] = []

    def read() -> None:
        while part := os.read(reading, 2048):
            found.append(part)
            time.sleep(0.001)

    async def say_all() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(40):
            print_lines("x" * 3999)
        await asyncio.Event().wait()
        return 0

    before = {number: signal.getsignal(number) for number in SIGNALS}
    reader = threading.Thread(target=read)
    reader.start()
    with open(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        try:
            assert asyncio.run(until_signal(say_all())) == INTERRUPTED
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    reader.join()
    os.close(reading)
    assert b"".join(found) == (b"x" * 3999 + b"\n") * 40


async def test_what_fails_at_tidying_up_is_raised() -> None:
    async def stop() -> None:
        raise OSError("still there")

    with pytest.raises(OSError, match="still there"):
        await finish(stop())


async def test_a_signal_is_not_lost_in_a_flood_of_keys() -> None:
    before = signal.getsignal(signal.SIGHUP)
    assert await run_console(cast(Console, FloodedConsole()), []) == INTERRUPTED
    assert signal.getsignal(signal.SIGHUP) == before


class TidyingConsole:
    """Was left, and its work tidies up while signals come."""

    crash = None
    recorder = None
    unanswered: tuple[str, ...] = ()
    parting: tuple[str, ...] = ()
    return_code = 0
    is_leaving = True

    def __init__(self, *signals: signal.Signals) -> None:
        self.signals = signals
        self.hurried = 0

    def hurry(self) -> None:
        self.hurried += 1

    async def run_async(self) -> None:
        return

    async def finish_work(self, on_wait: Callable[[str], None]) -> None:
        on_wait("leaving once a sweep has given k back")
        for number in self.signals:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "hurried"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGHUP, 0)]
)
async def test_a_signal_cuts_short_what_tidies_up_after_the_console_unless_it_hung_up(
    number: signal.Signals, hurried: int
) -> None:
    app = TidyingConsole(number)
    assert await run_console(cast(Console, app), []) == INTERRUPTED
    assert app.hurried == hurried


async def test_what_a_sweep_may_have_left_turned_is_said_on_leaving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, told = TidyingConsole(), list[str]()
    app.unanswered = ("demo: NOT given back: the engine has k=2",)
    monkeypatch.setattr("specdeck.console.cli.common._log_if_read", told.append)
    assert await run_console(cast(Console, app), []) == 1
    assert told[-1] == "demo: NOT given back: the engine has k=2"


async def test_what_came_of_work_while_the_console_was_left_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, told = TidyingConsole(), list[str]()
    app.parting = ("incident file: incident-a.zip",)
    monkeypatch.setattr("specdeck.console.cli.common._log_if_read", told.append)
    assert await run_console(cast(Console, app), []) == 0
    assert told[-1] == "incident file: incident-a.zip"


class CancelledConsole:
    """Ends, and nobody has told it to."""

    crash: Exception | None = None
    recorder = None
    unanswered: tuple[str, ...] = ()
    parting: tuple[str, ...] = ()
    return_code = None
    is_leaving = False

    async def finish_work(self, on_wait: Callable[[str], None]) -> None:
        return

    async def run_async(self) -> None:
        return


async def test_a_console_that_ends_by_itself_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    with pytest.raises(Crash, match="nothing had told it to"):
        await run_console(cast(Console, CancelledConsole()), [])


class UndrawnConsole(CancelledConsole):
    """Is told to end before it begins."""

    async def run_async(self) -> None:
        raise AssertionError("it takes the terminal")


@pytest.fixture
def python_handlers() -> Iterator[None]:
    """Signals are handled as at the start of Python, until the end of the test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("python_handlers")
def test_ctrl_c_before_the_console_begins_leaves_the_terminal_alone() -> None:
    async def work() -> int:
        signal.raise_signal(signal.SIGINT)  # while it is imported, say
        return await run_console(cast(Console, UndrawnConsole()), [])

    with pytest.raises(KeyboardInterrupt):
        event_loop.run(work())


@pytest.mark.usefixtures("python_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_as_the_console_begins_leaves_the_terminal_alone(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def wake(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        signal.raise_signal(number)  # the handlers are in place
        yield

    monkeypatch.setattr("specdeck.console.cli.common.wake_at_signals", wake)
    work = run_console(cast(Console, UndrawnConsole()), [])
    assert event_loop.run(work) == INTERRUPTED


class ThreadlessConsole(CancelledConsole):
    """Ends since it got no memory for another thread."""

    crash = RuntimeError("can't start new thread")


async def test_a_console_that_gets_no_thread_says_so_and_has_no_defect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    with pytest.raises(NoMemory, match="out of memory"):
        await run_console(cast(Console, ThreadlessConsole()), [])


def test_a_signal_that_another_thread_gets_wakes_the_loop() -> None:
    """One was heard 20 seconds late, when a thread's work ended: the loop waited for events."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    is_waiting = threading.Event()

    def get() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if is_waiting.wait(10.0):
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGTERM)

    async def work() -> int:
        is_waiting.set()
        await asyncio.sleep(10.0)
        return 0

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    receiver = threading.Thread(target=get)
    receiver.start()
    began = time.monotonic()
    try:
        assert asyncio.run(until_signal(work())) == INTERRUPTED
    finally:
        receiver.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for number, handler in before.items():
            signal.signal(number, handler)
    assert time.monotonic() - began < 8.0
