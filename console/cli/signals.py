"""What a signal does to a command that does not handle it: 130, and never a traceback."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Timer
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from specdeck.console.cli.first_and_last import INTERRUPTED, exit_at_signals

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_SOON_S = 0.01
_HAS_INTERRUPTED: Final = Event()

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ctrl-C, a service manager, a terminal that was closed, Ctrl-\\: no core with secrets in it."""


class Interruption(Exception):
    """A signal has come while output waited for whoever reads it."""


class Arrival:
    """Whether a signal has come that ends the command, for output that waits for its reader.

    It waits within the event loop, which hears nothing meanwhile; and Python goes on with a write
    that a signal interrupts, unless the handler raises.
    """

    def __init__(self) -> None:
        self.has_come = False
        self.is_awaited = False
        """Whether output waits in the main thread, so that a signal has to raise."""

    def note(self) -> None:
        """A signal has come; raises Interruption where output waits."""
        self.has_come = True
        if self.is_awaited:
            self.is_awaited = False
            raise Interruption


ARRIVAL: Final = Arrival()
"""Of this process: signals come to all of it."""


def interrupt_at_signals() -> None:
    """Has a signal raise KeyboardInterrupt, as Ctrl-C does. What nohup ignores stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            # asyncio knows the default one of SIGINT, and has it cancel what runs.
            own = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if own else _interrupt)
    sys.unraisablehook = _interrupt_again


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _is_within_hook(frame):  # where an exception would be lost as the first one was
        _send_again()
        return
    # What it cuts short is nobody's fault: a coroutine that was made and not awaited yet.
    warnings.simplefilter("ignore")
    _HAS_INTERRUPTED.set()
    handle = signal.getsignal(signal.SIGINT)
    if not callable(handle):  # a shell's background command: Ctrl-C is for others
        raise KeyboardInterrupt
    # Where an event loop runs, asyncio's handler cancels its main task. An exception would end
    # whatever the loop is at, such as a library that enters a scope, and be lost in its complaint.
    handle(number, frame)


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Sends a signal once more whose exception Python could raise nowhere, as in a finalizer that
    an import calls; anything else is shown as it was."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        _send_again()
    elif not _HAS_INTERRUPTED.is_set():  # what was half made is finalized as well
        sys.__unraisablehook__(lost)


def _send_again() -> None:
    again = Timer(_SOON_S, os.kill, (os.getpid(), signal.SIGTERM))
    again.daemon = True
    again.start()


def _is_within_hook(frame: FrameType | None) -> bool:
    """Whether `_interrupt_again` is at work: a busy machine may take longer than the signal."""
    while frame is not None:
        if frame.f_code is _interrupt_again.__code__:
            return True
        frame = frame.f_back
    return False


@contextmanager
def wake_at_signals(loop: AbstractEventLoop) -> Iterator[None]:
    """Has a signal wake `loop` at once: for the main thread, which handles signals.

    Python handles one between two instructions of that thread. A signal that comes as the thread
    goes to wait for events, or that the system hands to another thread, does not end the wait;
    what is written to a file that the loop reads does. The loop's own pipe would be filled by a
    flood of callbacks.
    """
    reads, writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def drain() -> None:
        with suppress(BlockingIOError):
            os.read(reads, 4096)

    loop.add_reader(reads, drain)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        loop.remove_reader(reads)
        os.close(reads)
        os.close(writes)


def exit_interrupted() -> NoReturn:
    """Ends an interrupted command.

    Without Python's own end: it remembers an interrupt within `exec`, which every import of a
    dataclass calls, and would end itself by SIGINT whatever the exit code.
    """
    exit_at_signals()  # one more has nothing to interrupt
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)
