"""Ends an engine that specdeck started, with all of its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from specdeck.engine.errors import EngineError
from specdeck.engine.launch import ports, process
from specdeck.engine.launch.registry import Record, Registry

SERVING_GRACE_S = 15.0


STARTING_GRACE_S = 3.0
"""A server that still waits for its engine core ignores SIGTERM, and has nobody to serve."""


ORPHANS_GRACE_S = 2.0
"""Workers of a dead server: there is no request left to finish."""


HANGS_S = 30.0
"""A process that outlives SIGKILL so long hangs in the kernel: giving back the memory of a model
takes seconds, on a busy machine ten of them."""


TIDY_S = 3.0
"""For what tidies up after killed processes, once they are gone: Python's resource trackers delete
the shared memory and the semaphores of those whose pipe ends."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """One moment of an engine's end."""

    elapsed: float
    """Seconds since the stop was asked for."""
    left: int
    """Processes that still run."""
    killed: bool
    """Whether the time for an orderly end is over."""


async def stop_engine(
    record: Record,
    registry: Registry,
    *,
    grace_s: float | None = None,
    every: float = 0.1,
    on_progress: Callable[[Stopping], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Ends every process of the engine and forgets it.

    The server is asked first and has `grace_s` to end in order: 15 s when it serves, 3 s
    while it starts, 2 s for its orphans when it is dead. Then whatever is left in its
    session is killed, what tidies up after the others last. Returns once nothing runs and the
    port is free. Raises EngineError when a process outlives even that (one that hangs in the
    kernel), for one that this user may not signal, and for an engine of another host; the record
    is kept then, so that it is found. So it does once the engine has ended and its record cannot be
    deleted.
    """
    if record.life() == "elsewhere":
        raise record.elsewhere_error()
    began = clock()
    grace_s = _grace(record) if grace_s is None else grace_s
    asked = killed = False
    while left := process.members(record.leader):
        elapsed = clock() - began
        on_progress(Stopping(elapsed, len(left), killed))
        if elapsed > grace_s + HANGS_S:
            pids = ", ".join(str(process.pid) for process in left)
            raise EngineError(
                f"{record.name}: killed, and has not ended: process {pids}",
                remedy=f"`specdeck stop {record.name}` again, in a while",
            )
        if elapsed > grace_s:
            killed = True
            others = [one for one in left if not process.tidies_up(one)]
            _send(record, left if elapsed > grace_s + TIDY_S else others, signal.SIGKILL)
        elif not asked:
            asked = True
            _ask(record, left)
        await sleep(every)
        _reap(record.pid)
    await _wait_for_port(record, every, clock() + 5.0, clock, sleep)
    on_progress(Stopping(clock() - began, 0, killed))
    try:
        registry.remove(record)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise EngineError(
            f"{record.name} has ended, and its record cannot be deleted: {reason}",
            remedy="make its folder writable: `specdeck ps` deletes it then",
        ) from error


def _grace(record: Record) -> float:
    if not process.leads(record.leader):
        return ORPHANS_GRACE_S
    return SERVING_GRACE_S if record.serves() else STARTING_GRACE_S


def _ask(record: Record, left: Sequence[process.Process]) -> None:
    """SIGTERM to the server; to its orphans where it is dead."""
    server = [process for process in left if process.pid == record.pid]
    _send(record, server or left, signal.SIGTERM)
    _send(record, left, signal.SIGCONT)  # a stopped process takes no other signal than SIGKILL


def _send(record: Record, to: Sequence[process.Process], number: signal.Signals) -> None:
    """Signals all that this user may signal; raises EngineError where that is none of them."""
    refused = [one for one in to if not process.send(one, number)]
    if refused and len(refused) == len(to):
        owner = process.find_owner(refused[0]) or "another user"
        raise EngineError(
            f"{record.name}: not permitted to signal process {refused[0].pid}, which is {owner}'s",
            remedy=f"stop it as {owner}",
        )


def _reap(pid: int) -> None:
    """Takes a dead child's status where the engine is a child of this process."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def _wait_for_port(
    record: Record,
    every: float,
    until: float,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Waits for the port, but not for ever: somebody else may have taken it already."""
    port = record.port
    while port is not None and ports.port_refusal(record.address, port) and clock() < until:
        await sleep(every)
