"""One start of an engine, from a good config to a server that answers, and the way back."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from specdeck.engine.config.config import Config
from specdeck.engine.errors import StartFailed
from specdeck.engine.launch import argv as command_line
from specdeck.engine.launch import ports, process, sockets
from specdeck.engine.launch.build import detected
from specdeck.engine.launch.progress import LogTail, Progress, Stage, follow
from specdeck.engine.launch.reason import reason
from specdeck.engine.launch.registry import Record, Registry
from specdeck.engine.locations import Locations, private

Answers = Callable[[str], Awaitable[bool]]
"""Asks the server at a URL whether it is up."""


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
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.record: Record | None = None
        """The engine's own record; None before there is a process."""
        self.failed: Progress | None = None
        """The moment at which the start failed."""
        self.token_file = process.token_path(locations)
        """Where the engine's admin token will lie."""
        self._host = config.host or "127.0.0.1"
        wanted = config.port if port is None else port
        self._registry = Registry(locations.engines)
        self._port = ports.chosen(self._host, 8000 if wanted is None else wanted, self._registry)
        self.url = url(self._host, self._port)
        """Where the engine will answer."""
        self.name = config.served_name or config.path.stem
        """What people call it; the registry may have to add a number."""
        self._locations = locations
        self._answers = answers
        self._environment = os.environ if environment is None else environment
        self._last_elapsed = last_elapsed
        self._version = version
        self._python = python
        self._clock = clock
        self._now = now
        self._started: process.Started | None = None
        self._ending: StartFailed | None = None

    async def progress(self) -> AsyncIterator[Progress]:
        """Every moment of the start; the last one is ready or failed.

        A start that fails has ended everything it began when its last moment comes.
        Raises StartFailed when there is not even a process.
        """
        began = self._clock()
        yield self._moment("environment", began)
        if self.config.deepen is not None:
            yield self._moment("weights", began)
            self.config = await asyncio.to_thread(deepened, self.config, self._locations)
        yield self._moment("process", began)
        self._started = self._start()
        self.record = self._started.record
        async for moment in follow(
            Path(self.record.log),
            exit_code=self.exit_code,
            answers=self._answered,
            began=began,
            last_elapsed=self._last_elapsed,
            clock=self._clock,
        ):
            if moment.failed is not None:
                self.failed = moment
                await self.stop(grace_s=0.0)
            elif moment.ready:
                self.record = replace(self.record, ready=self._now())
                self._registry.update(self.record)
            yield moment

    def exit_code(self) -> int | None:
        """How the engine's server ended; None while it runs and before it was started."""
        return self._started.exit_code() if self._started else None

    async def stop(
        self,
        *,
        grace_s: float | None = None,
        said: Callable[[process.Stopping], None] = lambda _: None,
    ) -> None:
        """Ends every process of the engine; without effect when there is none."""
        if self.record is not None:
            await process.stop(self.record, self._registry, grace_s=grace_s, said=said)

    def failure(self) -> StartFailed:
        """Why the start failed, for one line on a terminal."""
        assert self.failed is not None
        log = f"the whole log is {self.failed.log_path}"
        return StartFailed(f"the engine did not start: {self.failed.failed}", remedy=log)

    def ended(self) -> StartFailed | None:
        """How an engine that was ready came to its end; None while it runs."""
        code = self.exit_code()
        if code is None or self.record is None:
            return None
        if self._ending is None:
            log = Path(self.record.log)
            why = reason(LogTail(log).text(), code)
            self._ending = StartFailed(f"the engine ended: {why}", remedy=f"the whole log is {log}")
        return self._ending

    async def _answered(self) -> bool:
        """Whether this very engine answers, and not another one at its URL."""
        assert self.record is not None
        if not await self._answers(self.url):
            return False
        return sockets.listens(self.record.leader, self._port) is not False

    def _start(self) -> process.Started:
        build = detected()
        environment = command_line.environment(
            self.config, self._environment, token_file=self.token_file, build=build
        )
        command = process.Command(
            argv=command_line.argv(
                self.config,
                python=self._python,
                host=self._host,
                port=self._port,
                gpu=build.kind == "gpu",
                environment=environment,
            ),
            environment=environment,
            name=self.name,
            url=self.url,
            token_file=self.token_file,
            config=str(self.config.path.absolute()),
            model=self.config.served_name,
            version=self._version,
        )
        return process.start(
            command, registry=self._registry, locations=self._locations, clock=self._now
        )

    def _moment(self, stage: Stage, began: float) -> Progress:
        return Progress(stage, self._clock() - began, self._last_elapsed)


def url(host: str, port: int) -> str:
    """Where a client on this machine reaches a server that listens on `host`.

    >>> url("0.0.0.0", 8000), url("::1", 80)
    ('http://127.0.0.1:8000', 'http://[::1]:80')
    """
    reached = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def deepened(config: Config, locations: Locations) -> Config:
    """`config` with its target made as deep as it asks for; blocks while the files are written."""
    from specdeck.engine.demo import deepen

    assert config.deepen is not None
    assert config.model is not None
    source, layers = Path(config.model), config.deepen.layers
    destination = private(locations.models) / f"{source.name}-{layers}-layers"
    try:
        made = deepen.deepen_model(source, layers, destination)
    except (OSError, ValueError, KeyError) as error:
        raise StartFailed(f"{source}: cannot be deepened: {error}") from error
    names = config.engine_args.get("served_model_name") or [source.name]
    arguments = {**config.engine_args, "model": str(made), "served_model_name": names}
    return replace(config, engine_args=MappingProxyType(arguments), deepen=None)
