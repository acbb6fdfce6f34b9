"""A signal in a command's first and last moments, when nothing is there to be tidied up; and what
a command cannot begin without.

Imported before all else, so it imports next to nothing: until then a signal ends Python, and the
process with the signal's own number.
"""

from __future__ import annotations

# What `signal` is made of, whose enums alone take as long to import as all else here.
import _signal  # type: ignore[import-not-found]
import atexit
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # as `typing` has it, which takes its time to be imported
    from collections.abc import Callable

INTERRUPTED = 130
"""The exit code of a command that a signal has ended."""

WRONG_USAGE = 2

_NUMBERS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)


def exit_at_signals() -> None:
    """Has a signal end the process at once: there is nothing to tidy up, or nothing any more.

    An exception would be lost in an import, or shown. What nohup ignores stays ignored. What the
    parent blocks, as one that forks within a thread may, would never arrive: it is let through.
    """
    for number in _NUMBERS:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _NUMBERS)


def require_clock(wall: Callable[[], float] = time.time) -> None:
    """Ends the process with one line where the machine's clock, `wall`, has no time that Python can
    tell: its own modules fail to be imported then."""
    try:
        wall()
    except OverflowError:
        os.write(2, b"specdeck: the clock of this machine is beyond the year 2262: set it\n")
        raise SystemExit(WRONG_USAGE) from None


def keep_exit_code() -> None:
    """Has a signal that comes while Python takes itself apart leave the exit code as it is.

    Python has dropped every handler by then, so that a signal would end the process with its own
    number, though all is done and said. To be asked before anything else is: what is registered
    first is called last, when no thread is waited for any more.
    """
    atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    for number in _NUMBERS:
        _signal.signal(number, _signal.SIG_IGN)
