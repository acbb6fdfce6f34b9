"""Starting an engine so that no console's death loses it, and ending all of it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from specdeck.engine.errors import EngineError, StartFailed, UsageError
from specdeck.engine.launch import session
from specdeck.engine.launch.machine import port_taken
from specdeck.engine.launch.registry import Record, Registry, slug
from specdeck.engine.locations import Locations, private
from specdeck.engine.plugin.admin_token import write_token

_GATE = 'IFS= read -r go && exec "$@" </dev/null'
"""The engine's process waits for a word before it becomes the engine.

The word is given once the engine is registered. A console that is killed before that
closes the pipe, `read` fails and the process ends: there is no moment at which an
engine runs and nobody can find it. `exec` keeps pid, session and birth.
"""

KEPT_LOGS = 30

SERVING_GRACE_S = 15.0
STARTING_GRACE_S = 3.0
"""A server that still waits for its engine core ignores SIGTERM, and has nobody to serve."""
ORPHANS_GRACE_S = 2.0
"""Workers of a dead server: there is no request left to finish."""
HANGS_S = 10.0
"""A process that outlives SIGKILL so long hangs in the kernel."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and what to remember of it."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    name: str
    """Shortened and made unique by the registry."""
    url: str
    token_file: Path
    config: str | None = None
    model: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """An engine whose parent is this process."""

    record: Record
    popen: subprocess.Popen[bytes] = field(repr=False)

    def exit_code(self) -> int | None:
        """How the engine's first process ended; None while it runs."""
        return self.popen.poll()


@dataclass(frozen=True, slots=True)
class Stopping:
    """One moment of an engine's end."""

    elapsed: float
    """Seconds since the stop was asked for."""
    left: int
    """Processes that still run."""
    killed: bool
    """Whether the time for an orderly end is over."""


def token_path(locations: Locations) -> Path:
    """Where the token of one engine to come will lie; nothing is created."""
    return locations.tokens / secrets.token_hex(8)


def start(
    command: Command,
    *,
    registry: Registry,
    locations: Locations,
    clock: Callable[[], float] = time.time,
) -> Started:
    """Starts an engine in a session of its own, with a token, registered before it runs.

    It survives this process: no terminal, no pipe and no parent ties it. Raises
    StartFailed when not even its process could be made, UsageError when another engine
    has the port.
    """
    now = clock()
    log = _new_log(locations, command.name, now, keep={r.log for r in registry.records()})
    reading, writing = os.pipe()
    with ExitStack() as undo:
        undo.callback(command.token_file.unlink, missing_ok=True)
        private(command.token_file.parent)
        write_token(command.token_file)
        with open(reading, "rb") as stdin, open(writing, "wb") as gate, open(log, "ab") as output:
            try:
                popen = subprocess.Popen(
                    ["/bin/sh", "-c", _GATE, "sh", *command.argv],
                    stdin=stdin,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(command.environment),
                    start_new_session=True,
                )
                record = _registered(command, popen.pid, log, now, registry)
                gate.write(b"go\n")
                gate.flush()
            except UsageError:
                gate.close()  # its end of the pipe: the process that waits there ends
                popen.wait()
                log.unlink(missing_ok=True)
                raise
            except OSError as error:
                raise StartFailed(f"the engine cannot be started: {error}") from error
        undo.pop_all()
    return Started(record, popen)


def _registered(command: Command, pid: int, log: Path, now: float, registry: Registry) -> Record:
    leader = session.leader(pid)
    if leader is None:
        raise StartFailed("the engine's process ended at once", remedy=f"see {log}")
    return registry.add(
        Record(
            name=slug(command.name),
            url=command.url,
            pid=leader.pid,
            born=leader.born,
            boot=leader.boot,
            started=now,
            log=str(log),
            token_file=str(command.token_file),
            config=command.config,
            model=command.model,
            version=command.version,
        ),
        exclusive=True,
    )


async def stop(
    record: Record,
    registry: Registry,
    *,
    grace_s: float | None = None,
    every: float = 0.1,
    said: Callable[[Stopping], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Ends every process of the engine and forgets it.

    The server is asked first and has `grace_s` to end in order: 15 s when it serves, 3 s
    while it starts, 2 s for its orphans when it is dead. Then whatever is left in its
    session is killed. Returns once nothing runs and the port is free. Raises EngineError
    when a process outlives even that (one that hangs in the kernel); the record is kept
    then, so that it is found.
    """
    began = clock()
    grace_s = _grace(record) if grace_s is None else grace_s
    asked = killed = False
    while left := session.members(record.leader):
        elapsed = clock() - began
        said(Stopping(elapsed, len(left), killed))
        if elapsed > grace_s + HANGS_S:
            pids = ", ".join(str(process.pid) for process in left)
            raise EngineError(f"{record.name}: cannot be killed: process {pids}")
        if elapsed > grace_s:
            killed = True
            _send(left, signal.SIGKILL)
        elif not asked:
            asked = True
            _ask(record, left)
        await sleep(every)
        _reap(record.pid)
    await _port_freed(record, every, clock() + 5.0, clock, sleep)
    registry.remove(record)
    said(Stopping(clock() - began, 0, killed))


def _grace(record: Record) -> float:
    if not session.leads(record.leader):
        return ORPHANS_GRACE_S
    host = urlsplit(record.url).hostname or "127.0.0.1"
    serves = record.ready is not None or record.port is None or port_taken(host, record.port)
    return SERVING_GRACE_S if serves else STARTING_GRACE_S


def _ask(record: Record, left: Sequence[session.Process]) -> None:
    """SIGTERM to the server; to its orphans where it is dead."""
    server = [process for process in left if process.pid == record.pid]
    _send(server or left, signal.SIGTERM)
    _send(left, signal.SIGCONT)  # a stopped process takes no other signal than SIGKILL


def _send(to: Sequence[session.Process], number: signal.Signals) -> None:
    for process in to:
        session.send(process, number)


def _reap(pid: int) -> None:
    """Takes a dead child's status where the engine is a child of this process."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def _port_freed(
    record: Record,
    every: float,
    until: float,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Waits for the port, but not for ever: somebody else may have taken it already."""
    host, port = urlsplit(record.url).hostname or "127.0.0.1", record.port
    while port is not None and port_taken(host, port) and clock() < until:
        await sleep(every)


def _new_log(locations: Locations, name: str, now: float, keep: Container[str]) -> Path:
    """A new log for its owner only; the oldest ones make room, save those in use."""
    folder = private(locations.logs)
    for old in sorted(folder.glob("*.log"))[: -KEPT_LOGS + 1]:
        if str(old) not in keep:
            old.unlink(missing_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    path = folder / f"{stamp}-{slug(name)}-{secrets.token_hex(2)}.log"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path
