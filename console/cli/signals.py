"""What a signal does to a command that does not handle it: 130, and never a traceback.

The standard library only: it is imported before all else.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130
"""The exit code of a command that a signal has ended."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a service manager, a terminal that was closed."""


def exit_at_signals() -> None:
    """Has a signal end the process at once: there is nothing to tidy up, or nothing any more.

    An exception would be lost in an import, or shown. What nohup ignores stays ignored.
    """
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(INTERRUPTED))


def interrupt_at_signals() -> None:
    """Has a signal raise KeyboardInterrupt, as Ctrl-C does. What nohup ignores stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def exit_interrupted() -> NoReturn:
    """Ends an interrupted command.

    Without Python's own end: it remembers an interrupt within `exec`, which every import of a
    dataclass calls, and would end itself by SIGINT whatever the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)
