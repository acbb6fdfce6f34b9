"""`specdeck stop`: ends an engine that specdeck started, with all of its processes."""

from __future__ import annotations

import asyncio
import os

import click

from specdeck.console.cli.output import emit, log
from specdeck.engine.errors import EngineError, UsageError
from specdeck.engine.launch import launcher, process
from specdeck.engine.launch.registry import Registry
from specdeck.engine.paths import locations

EVERY_S = 5.0
"""Between two lines of an engine that takes its time."""


@click.command("stop")
@click.argument("engine", metavar="NAME|URL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(engine: str, as_json: bool) -> None:
    """End an engine that specdeck started, all of its processes, and wait until it is gone."""
    registry = Registry(locations(os.environ).engines)
    record = registry.find(engine)
    if record is None:
        raise UsageError(f"no engine {engine} that specdeck started", remedy="see `specdeck ps`")
    if not process.members(record.leader):
        registry.clean()
        raise EngineError(f"{record.name} has ended already", remedy="see `specdeck ps`")
    count = len(process.members(record.leader))
    steps: list[launcher.Stopping] = []
    asyncio.run(launcher.stop(record, registry, on_progress=Teller(record.name, steps)))
    last = steps[-1]
    if as_json:
        said = {"name": record.name, "url": record.url, "processes": count}
        emit({**said, "killed": last.killed, "seconds": round(last.elapsed, 1)})
    else:
        how = "killed" if last.killed else "ended"
        click.echo(f"{record.name}: {processes(count)} {how} in {last.elapsed:.1f} s")


def processes(count: int) -> str:
    """How many, in words.

    >>> processes(1), processes(3)
    ('1 process', '3 processes')
    """
    return f"{count} process" if count == 1 else f"{count} processes"


class Teller:
    """Says on stderr how an engine's end goes: after a second, then every 5 s."""

    def __init__(self, name: str, steps: list[launcher.Stopping] | None = None) -> None:
        self._name = name
        self._steps = steps if steps is not None else []
        self._due = 1.0

    def __call__(self, step: launcher.Stopping) -> None:
        """Takes note of one moment."""
        self._steps.append(step)
        if step.left and step.elapsed >= self._due:
            self._due = step.elapsed + EVERY_S
            how = "killing" if step.killed else "waiting for"
            log(f"{self._name}: {how} {processes(step.left)}, {step.elapsed:.0f} s")
