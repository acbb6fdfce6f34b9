"""Starts an engine so that no console's death loses it, follows its start, and ends all of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from specdeck.engine.client.token import read_token
from specdeck.engine.config.config import Config
from specdeck.engine.core_dumps import give_back_core_dumps
from specdeck.engine.demo import deepen
from specdeck.engine.errors import SpecdeckError, StartFailed, Unreachable, UsageError
from specdeck.engine.fingerprint.secrecy import find_secrets
from specdeck.engine.fingerprint.secret_names import list_secrets
from specdeck.engine.launch import command, ports, process
from specdeck.engine.launch.failure_reason import Mask, find_reason
from specdeck.engine.launch.guard import Guard
from specdeck.engine.launch.machine import detect_build
from specdeck.engine.launch.ownership import PortOwner
from specdeck.engine.launch.private_arguments import write_private
from specdeck.engine.launch.progress import LogTail, Stage, StartProgress, follow
from specdeck.engine.launch.registry import Record, Registry, port_conflict, private_file, slug
from specdeck.engine.launch.stop import Stopping, stop_engine
from specdeck.engine.paths import Locations, private
from specdeck.engine.plugin.admin_token import write_token
from specdeck.engine.plugin.secret_values import make_mask

Answers = Callable[[str], Awaitable[bool]]
"""Asks the server at a URL whether it is up."""

_GATE = 'IFS= read -r go && exec "$@" </dev/null'
"""The engine's process waits for a word before it becomes the engine.

The word is given once the engine is registered. A console that is killed before that
closes the pipe, `read` fails and the process ends: there is no moment at which an
engine runs and nobody can find it. `exec` keeps pid, session and birth.
"""

KEPT_LOGS = 30

_FORGETS_S = 1.0
"""Within which who stops an engine from elsewhere removes its record, once the server is killed."""
_LOOK_S = 0.1


class Launch:
    """Starts the engine of one config; `progress` does the work while it is iterated.

    Raises UsageError when the port is taken, or taken by the time the process begins.
    """

    def __init__(
        self,
        config: Config,
        *,
        locations: Locations,
        answers: Answers,
        environment: Mapping[str, str] | None = None,
        port: int | Literal["auto"] | None = None,
        last_elapsed: float | None = None,
        version: str | None = None,
        python: str = sys.executable,
        guarded: bool = False,
    ) -> None:
        """A `guarded` engine ends with this process, also where that is killed."""
        self.config = config
        self.record: Record | None = None
        """The engine's own record; None before there is a process."""
        self.failed: StartProgress | None = None
        """The moment at which the start failed."""
        self.unrecorded: str | None = None
        """Why `ps` does not know that it is ready, for one line; None where it does."""
        self.is_listed = True
        """Whether `ps` and `stop` find it, once it is ready: its record may have been deleted."""
        self.token_file = token_path(locations)
        """Where the engine's admin token will lie."""
        self._host = config.host or "127.0.0.1"
        wanted = config.port if port is None else port
        self._registry = Registry(locations.engines)
        self._port = choose_port(self._host, 8000 if wanted is None else wanted, self._registry)
        self.url = url(self._host, self._port)
        """Where the engine will answer."""
        self._wanted_name = config.served_name or config.path.stem
        self.name = self._registry.next_name(self._wanted_name)
        """What its record calls it; before there is one, what it would be called now."""
        self.others = tuple(one for one in self._registry.records() if self._is_another(one))
        """Engines of this config, or of its name, that run or start already."""
        self._locations = locations
        self._arguments = config.arguments_digest  # of the file, before a model is deepened
        self._answers = answers
        self._environment = os.environ if environment is None else environment
        self._last_elapsed = last_elapsed
        self._version = version
        self._python = python
        self._guarded = guarded
        self._guard: Guard | None = None
        self._started: StartedEngine | None = None
        self._owner: PortOwner | None = None
        self._ending: StartFailed | None = None
        self._is_stopped = False
        """Whether this process has ended it, or begun to."""
        self._mask: Mask = str
        """Takes what the engine was given in secret out of its log, which may quote it."""

    async def progress(self) -> AsyncIterator[StartProgress]:
        """Every moment of the start; the last one is ready or failed.

        A start that fails has ended everything it began when its last moment comes.
        Raises StartFailed when there is not even a process.
        """
        began = time.monotonic()
        yield self._moment("environment", began)
        if self.config.deepen is not None:
            yield self._moment("weights", began)
            self.config = await asyncio.to_thread(deepen_target, self.config, self._locations)
        yield self._moment("process", began)
        self._started = self._start()
        self.record = self._started.record
        self._mask = make_mask(self._list_secrets(self.record))
        self.name = self.record.name  # another start may have taken the name meanwhile
        async for moment in follow(
            Path(self.record.log),
            exit_code=self.exit_code,
            answers=self._is_up,
            began=began,
            last_elapsed=self._last_elapsed,
            mask=self._mask,
        ):
            if moment.failed is not None:
                if await self._is_forgotten_elsewhere():
                    failed = f"{moment.failed}, or somebody ran `specdeck stop` elsewhere"
                    moment = replace(moment, failed=failed)
                self.failed = moment
                await self.stop(grace_s=0.0)
            elif moment.ready:
                with suppress(OSError):  # the engine deletes it, too
                    private_file(self.token_file).unlink(missing_ok=True)  # vLLM has read it
                self.record = replace(self.record, ready=time.time())
                self.unrecorded = self._note_ready(self.record)
            yield moment

    def _list_secrets(self, record: Record) -> Iterator[str]:
        yield from find_secrets("", dict(self.config.engine_args))
        yield from list_secrets(self._environment)
        token = read_token(record.token_path)
        if token is not None:
            yield token.reveal()

    async def _is_forgotten_elsewhere(self) -> bool:
        """Whether another process has removed the record of a server that has ended: `stop`, which
        ends it first, or `ps`, which finds it gone."""
        code = self.exit_code()
        if code is None or self.record is None or self._is_stopped:
            return False
        ends = time.monotonic() + (_FORGETS_S if code < 0 else 0.0)
        while not (is_gone := self._registry.is_forgotten(self.record)):
            if time.monotonic() >= ends:
                break
            await asyncio.sleep(_LOOK_S)
        return is_gone and not self._is_stopped

    def _note_ready(self, record: Record) -> str | None:
        """Why its record does not say that it is ready: for that no engine is ended."""
        try:
            self.is_listed = self._registry.update(record)
        except OSError as error:
            return f"its record cannot be written: {(error.strerror or str(error)).lower()}"
        except SpecdeckError as error:  # another console holds the records
            return error.line()
        return None if self.is_listed else "its record is gone"

    def exit_code(self) -> int | None:
        """How the engine's server ended; None while it runs and before it was started."""
        return self._started.popen.poll() if self._started else None

    async def stop(
        self,
        *,
        grace_s: float | None = None,
        on_progress: Callable[[Stopping], None] = lambda _: None,
    ) -> None:
        """Ends every process of the engine; without effect when there is none."""
        self._is_stopped = True
        if self.record is not None:
            await stop_engine(self.record, self._registry, grace_s=grace_s, on_progress=on_progress)
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)
            self._guard = None

    def failure(self) -> StartFailed:
        """Why the start failed, for one line on a terminal."""
        assert self.failed is not None
        log = f"the whole log is {self.failed.log_path}"
        return StartFailed(f"the engine did not start: {self.failed.failed}", remedy=log)

    def exit_error(self) -> StartFailed | None:
        """How an engine that was ready came to its end; None while it runs."""
        code = self.exit_code()
        if code is None or self.record is None:
            return None
        if self._ending is None:
            log = Path(self.record.log)
            why = find_reason(LogTail(log).text(), code, self._mask)
            self._ending = StartFailed(f"the engine ended: {why}", remedy=f"the whole log is {log}")
        return self._ending

    def check_port(self) -> None:
        """Raises EngineError unless this very engine has its port, so that it may be asked.

        Where the kernel does not tell who listens, it is enough that the process runs.
        """
        if (ended := self.exit_error()) is not None:
            raise ended
        if self.record is None:
            raise Unreachable(f"{self.url} refuses connections", remedy="wait for its start")
        if self._owner is None:
            self._owner = PortOwner(self.record)
        self._owner.check()

    def _is_another(self, record: Record) -> bool:
        same = record.config == str(self.config.path.absolute())
        return (same or record.name == slug(self._wanted_name)) and record.life() == "running"

    async def _is_up(self) -> bool:
        """Whether this very engine answers, and not another one at its URL."""
        assert self.record is not None
        if not await self._answers(self.url):
            return False
        return ports.listens(self.record.leader, self._port) is not False

    def _start(self) -> StartedEngine:
        build = detect_build()
        environment = command.build_environment(
            self.config, self._environment, token_file=self.token_file, build=build
        )
        asked = Command(
            argv=command.build_argv(
                self.config,
                python=self._python,
                host=self._host,
                port=self._port,
                build=build,
                environment=environment,
                private=private_file(self.token_file),
            ),
            environment=environment,
            private=command.private_arguments(self.config, build=build, environment=environment),
            name=self._wanted_name,
            url=self.url,
            token_file=self.token_file,
            config=str(self.config.path.absolute()),
            model=self.config.served_name,
            version=self._version,
            arguments=self._arguments,
        )
        return start(
            asked,
            registry=self._registry,
            locations=self._locations,
            before_it_runs=self._begin_guard,
        )

    def _begin_guard(self, record: Record) -> None:
        if self._guarded:
            self._guard = Guard(record, self._locations.engines, self._environment)

    def _moment(self, stage: Stage, began: float) -> StartProgress:
        return StartProgress(stage, time.monotonic() - began, self._last_elapsed)


def url(host: str, port: int) -> str:
    """Where a client on this machine reaches a server that listens on `host`.

    >>> url("0.0.0.0", 8000), url("localhost", 8000), url("::1", 80)
    ('http://127.0.0.1:8000', 'http://127.0.0.1:8000', 'http://[::1]:80')
    """
    # vLLM takes a name for an IPv4 address, and localhost may lead to ::1 first.
    loopback = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}
    reached = loopback.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def deepen_target(config: Config, locations: Locations) -> Config:
    """`config` with its target made as deep as it asks for; blocks while the files are written."""
    assert config.deepen is not None
    assert config.model is not None
    source, layers = Path(config.model), config.deepen.layers
    # Another model of the same name is not to take the place of one that an engine is loading.
    place = hashlib.sha256(os.fsencode(os.path.realpath(source))).hexdigest()[:8]
    destination = private(locations.models) / f"{source.name}-{place}-{layers}-layers"
    try:
        made = deepen.deepen_model(source, layers, destination)
    except (OSError, ValueError, KeyError) as error:
        raise StartFailed(f"{source}: cannot be deepened: {error}") from error
    names = config.engine_args.get("served_model_name") or [source.name]
    arguments = {**config.engine_args, "model": str(made), "served_model_name": names}
    return replace(config, engine_args=MappingProxyType(arguments), deepen=None)


def choose_port(host: str, wanted: int | Literal["auto"], registry: Registry) -> int:
    """The port to start on: `wanted`, or any free one for 0 and `auto`.

    Raises UsageError when the port is taken, naming by whom: an engine in the registry,
    which may not listen yet, or whoever the kernel tells of.
    """
    if wanted in (0, "auto"):
        return ports.find_free(host, is_reserved=lambda port: registry.holder(port) is not None)
    assert isinstance(wanted, int)
    if holder := registry.holder(wanted):
        raise port_conflict(wanted, holder)
    if why := ports.port_refusal(host, wanted):
        raise UsageError(f"port {wanted}: {why}", remedy="choose another, or --port auto")
    return wanted


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
    arguments: str | None = None
    """`Config.arguments_digest`."""
    private: str | None = field(default=None, repr=False)
    """The text of the file with the arguments that hold a secret; None without such."""


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """An engine whose parent is this process."""

    record: Record
    popen: subprocess.Popen[bytes] = field(repr=False)


def token_path(locations: Locations) -> Path:
    """Where the token of one engine to come will lie; nothing is created."""
    return locations.tokens / secrets.token_hex(8)


def start(
    command: Command,
    *,
    registry: Registry,
    locations: Locations,
    before_it_runs: Callable[[Record], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> StartedEngine:
    """Starts an engine in a session of its own, with a token, registered before it runs.

    It survives this process: no terminal, no pipe and no parent ties it. `before_it_runs` is given
    its record, and whatever kills this process until it has returned ends the engine, too. Raises
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
        if command.private is not None:
            file = private_file(command.token_file)
            undo.callback(file.unlink, missing_ok=True)
            write_private(file, command.private)
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
                give_back_core_dumps(popen.pid)
                record = _register(command, popen.pid, log, now, registry)
                before_it_runs(record)
                gate.write(b"go\n")
                gate.flush()
            except UsageError:
                gate.close()  # its end of the pipe: the process that waits there ends
                popen.wait()
                log.unlink(missing_ok=True)
                raise
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                where = f"{error.filename}: " if error.filename else ""
                raise StartFailed(f"the engine cannot be started: {where}{why}") from error
        undo.pop_all()
    return StartedEngine(record, popen)


def _register(command: Command, pid: int, log: Path, now: float, registry: Registry) -> Record:
    leader = process.find_leader(pid)
    if leader is None:
        raise StartFailed("the engine's process ended at once", remedy=f"see {log}")
    here = process.find_host()
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
            arguments=command.arguments,
            host=here.name,
            machine=here.machine,
            namespace=here.namespace,
        ),
        exclusive=True,
    )


def _new_log(locations: Locations, name: str, now: float, keep: Container[str]) -> Path:
    """A new log for its owner only; the oldest ones make room, save those in use."""
    folder = private(locations.logs)
    for old in sorted(folder.glob("*.log"))[: -KEPT_LOGS + 1]:
        if str(old) not in keep:
            with suppress(OSError):  # of a folder, say: that it stays keeps no engine from starting
                old.unlink()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    path = folder / f"{stamp}-{slug(name)}-{secrets.token_hex(2)}.log"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path
