"""What commands share: how a signal ends their work, and the user's store."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.cli.output import log
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.metrics.exposition import LOOPBACK
from specdeck.engine.paths import locations

if TYPE_CHECKING:
    from specdeck.engine.store.database import Store

INTERRUPTED = 130
"""The exit code of a command that a signal has ended."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a service manager, a terminal that was closed."""

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


@contextmanager
def open_user_store() -> Iterator[Store]:
    """The user's store; raises SpecdeckError when it cannot be used."""
    from specdeck.engine.store.database import Store

    with Store(locations(os.environ).store) as store:
        yield store


def note_start(config: Path, seconds: float) -> None:
    """Remembers how long a start took; a store that cannot be used stops no engine."""
    with suppress(SpecdeckError), open_user_store() as store:
        from specdeck.engine.store.starts import Start, Starts, config_key

        Starts(store).add(Start(time.time(), config_key(config), seconds))


def read_last_start(config: Path) -> float | None:
    """Seconds that the last start from this config took; None when there was none."""
    with suppress(SpecdeckError), open_user_store() as store:
        from specdeck.engine.store.starts import Starts, config_key

        last = Starts(store).last(config_key(config))
        return None if last is None else last.seconds
    return None
