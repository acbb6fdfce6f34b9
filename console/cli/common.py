"""What commands share: signals, the console on a terminal, the user's store, settings and name."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specdeck.console.cli.crash import report_crash
from specdeck.console.cli.first_and_last import INTERRUPTED
from specdeck.console.cli.output import log
from specdeck.console.cli.signals import ARRIVAL, SIGNALS, wake_at_signals
from specdeck.engine.client.address import LOOPBACK
from specdeck.engine.errors import LeftTurned, SpecdeckError, UsageError, find_shortage
from specdeck.engine.paths import locations

if TYPE_CHECKING:
    from specdeck.console.app import Console
    from specdeck.console.settings import Settings
    from specdeck.engine.client.attach import MonitoredEngine
    from specdeck.engine.store.database import Store

_Command = TypeVar("_Command", bound=Callable[..., Any])

metrics_address_option = click.option(
    "--metrics-address",
    metavar="A",
    default=LOOPBACK,
    show_default=True,
    help="The address for --metrics-port; 0.0.0.0 lets other machines read it.",
)


async def until_signal(
    work: Coroutine[Any, Any, int], *, on_interrupt: Callable[[], str] | None = None
) -> int:
    """Runs `work` to its end, or cancels it at the first signal and waits until it has tidied up.

    Returns the exit code: that of `work`, or 130 after a signal. `on_interrupt` gives the words
    that say how things stand then. Raises what `work` raises, also what it raises when it fails
    at tidying up.
    """
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    ARRIVAL.has_come = False

    def arrive(number: int, frame: object) -> None:
        if loop.is_closed():  # nothing is left to tidy up
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(signalled.set)
        ARRIVAL.note()

    for number in SIGNALS:
        # Under nohup the end of the terminal is to end nothing.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            # Not the loop's own handlers: a write that waits for a reader goes on after those.
            signal.signal(number, arrive)
    with wake_at_signals(loop):
        working = asyncio.create_task(work)
        waiting = asyncio.create_task(signalled.wait())
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if working.done():
            return working.result()
        working.cancel()
        await asyncio.wait({working})
    # The handlers stay: what tidies up after this must not be cut short by impatience.
    if not working.cancelled() and (failure := working.exception()) is not None:
        raise failure
    if on_interrupt is not None:
        log(f"specdeck: interrupted: {on_interrupt()}")
    return INTERRUPTED


async def finish(work: Coroutine[Any, Any, object]) -> None:
    """Runs what tidies up to its end, and lets a cancellation that comes meanwhile wait for that.

    Raises what `work` raises, and CancelledError after it.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


@contextmanager
def open_user_store() -> Iterator[Store]:
    """The user's store, without what is older than the user's settings keep.

    Raises SpecdeckError when it cannot be used.
    """
    from specdeck.engine.store.database import Store
    from specdeck.engine.store.retention import delete_older

    with Store(locations(os.environ).store) as store:
        # What cannot be deleted now, or how long is not said, waits for the next command.
        with suppress(SpecdeckError), store.impatient():
            if days := read_settings().retention_days:
                now = time.time()
                delete_older(store, now - timedelta(days=days).total_seconds(), now)
        yield store


def require_terminal(otherwise: str) -> None:
    """UsageError unless there is a terminal for the console."""
    # Textual draws on stderr, so that a redirected one would take the screen with it.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("the console requires a terminal", remedy=f"give {otherwise}")


def defer_collection() -> None:
    """Look for no garbage until the console's first paint, which looks for it again.

    Imports make many values and hardly any garbage; looking for it takes a tenth of a start.
    """
    gc.disable()


def _load_thread_exit() -> None:
    """Loads the library that glibc ends a thread with, while there is memory for it.

    It is looked for at the first end of a thread, and the process aborted where it is not found:
    with the terminal as the console has it.
    """
    import ctypes

    with suppress(OSError):  # another C library requires none
        ctypes.CDLL("libgcc_s.so.1")


def _log_if_read(line: str) -> None:
    """Nothing on a terminal that stalls: what tidies up meanwhile must not wait for a reader."""
    with suppress(OSError, ValueError, AttributeError):  # a stream that is closed, or none
        if select.select([], [sys.stderr.fileno()], [], 0)[1]:
            log(f"specdeck: {line}")


async def run_console(app: Console, engines: Sequence[MonitoredEngine]) -> int:
    """Runs the console; the exit code, 130 when a signal ended it, 1 where a sweep of it may have
    left an engine turned.

    A signal is handled as leaving is: the terminal is restored, and an engine that
    was started here runs on. Raises Crash for a defect, and NoMemory, when the terminal
    is restored. A signal that comes while work tidies up after that cuts it short; a hangup is not
    somebody's impatience, and may come twice.
    """
    _load_thread_exit()
    loop, signalled, is_restored = asyncio.get_running_loop(), False, False

    def end(number: int) -> None:
        nonlocal signalled
        signalled = True
        if not is_restored:
            app.exit("leave")
        elif number != signal.SIGHUP:
            app.hurry()

    # Not the loop's own handlers: they come through the pipe that a flood of keys fills, and what
    # does not fit is lost.
    before = {
        number: signal.signal(number, lambda number, _: loop.call_soon_threadsafe(end, number))
        for number in SIGNALS
    }
    try:
        with wake_at_signals(loop):
            # Ctrl-C while the console was imported has asyncio cancel this at its first wait: here,
            # with the terminal not taken yet.
            await asyncio.sleep(0)
            if not signalled:
                await app.run_async()
    except OSError:
        if not signalled:  # a terminal that hung up cannot be restored either
            raise
    finally:
        is_restored = True
        with wake_at_signals(loop):
            # Before anything is closed: a sweep gives its knobs back, and is recorded.
            await app.finish_work(_log_if_read)
        if app.recorder is not None:
            app.recorder.close()
        for engine in engines:
            await engine.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    defect = app.crash
    if defect is None and not (signalled or app.is_leaving):
        # As where its own task is cancelled: Textual ends then as if somebody had left.
        defect = RuntimeError("it ended, and nothing had told it to")
    if defect is not None:
        if (shortage := find_shortage(defect)) is not None:
            raise shortage from defect
        raise report_crash(defect, locations(os.environ).crashes) from defect
    for line in (*app.parting, *app.unanswered):
        _log_if_read(line)
    if app.unanswered:
        return LeftTurned.exit_code
    return INTERRUPTED if signalled else app.return_code or 0


def read_settings() -> Settings:
    """The user's settings; raises ConfigError for a file that cannot be used."""
    from specdeck.console.settings import read

    found = read(locations(os.environ).config / "settings.yaml")
    context = click.get_current_context(silent=True)
    asked = () if context is None else context.meta.get(_TERMINAL, ())
    return replace(
        found,
        ascii=found.ascii or "ascii" in asked,
        slow=found.slow or "slow" in asked,
        record=found.record and "no_record" not in asked,
    )


_TERMINAL = "specdeck.terminal"
"""The options of the command that speak of settings."""


def _switch_on(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given and option.name is not None:
        context.meta.setdefault(_TERMINAL, set()).add(option.name)


def terminal_options(command: _Command) -> _Command:
    """The options of a command that opens the console on a poor terminal; settings have them too.

    They are for `read_settings`, and no arguments of the command.
    """
    ascii_option = click.option(
        "--ascii", is_flag=True, expose_value=False, callback=_switch_on,
        help="Draw ASCII alone.",
    )  # fmt: skip
    slow_option = click.option(
        "--slow", is_flag=True, expose_value=False, callback=_switch_on,
        help="Draw every five seconds, for a poor line.",
    )  # fmt: skip
    return ascii_option(slow_option(command))


def record_option(command: _Command) -> _Command:
    """The option of a command that opens the console on live engines; for `read_settings`, too."""
    option = click.option(
        "--no-record", is_flag=True, expose_value=False, callback=_switch_on,
        help="Do not record the engines into black boxes.",
    )  # fmt: skip
    return option(command)


def black_box_folder() -> Path:
    """Where this user's black boxes lie."""
    return locations(os.environ).black_boxes


def theme_folders() -> tuple[Path, ...]:
    """The folders of the user's own themes."""
    return (locations(os.environ).config / "themes",)


class Whole(click.IntRange):
    """A whole number within bounds."""

    name = "whole number"


class Finite(click.FloatRange):
    """A number within bounds that is one: `nan` is below no minimum, and `inf` above all."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails as click's own types do."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


def write_or_log(write: Callable[[], None]) -> int:
    """Writes a file, or says why it cannot be; 0, or the code of the error."""
    try:
        write()
    except UsageError as error:
        log(f"specdeck: {error.line()}")
        return error.exit_code
    return 0
