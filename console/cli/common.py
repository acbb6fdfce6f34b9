"""What commands share: signals end their work in order, and how things stand is said."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from specdeck.console.cli.output import log

INTERRUPTED = 130
"""The exit code of a command that a signal has ended."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a service manager, a terminal that was closed."""


async def until_signal(
    work: Coroutine[Any, Any, int], *, on_interrupt: Callable[[], str] | None = None
) -> int:
    """Runs `work` to its end, or cancels it at the first signal and waits until it has tidied up.

    Returns the exit code: that of `work`, or 130 after a signal. `on_interrupt` gives the words
    that say how things stand then. Raises what `work` raises, also what it raises when it fails
    at tidying up.
    """
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signalled.set)
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
