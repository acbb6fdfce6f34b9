"""`specdeck ps` and `specdeck stop`: the engines that specdeck started, and the end of one."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import click

from specdeck.console.cli.common import until_signal
from specdeck.console.cli.first_and_last import INTERRUPTED
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.engine.client import event_loop
from specdeck.engine.client.address import refuse_credentials
from specdeck.engine.errors import EngineError, UsageError
from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record, Registry, Unreadable
from specdeck.engine.launch.stop import Stopping, stop_engine
from specdeck.engine.paths import locations
from specdeck.engine.text import format_duration, format_table, format_value

_INTERNAL = ("born", "boot", "machine", "namespace", "arguments", "schema")
"""Of a record, what only specdeck can read."""

EVERY_S = 5.0
"""Between two lines of an engine that takes its time."""


@click.command("ps")
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def ps(as_json: bool) -> None:
    """List the engines that specdeck started and that still have processes.

    Those of another host that shares this home are listed as elsewhere.
    """
    registry = Registry(locations(os.environ).engines)
    registry.clean()
    entries = [
        entry for entry in registry.all() if isinstance(entry, Unreadable) or entry.life() != "gone"
    ]
    if as_json:
        emit([record_as_json(entry) for entry in entries])
        return
    records = [entry for entry in entries if isinstance(entry, Record)]
    if records:
        head = ("NAME", "STATE", "URL", "MODEL", "PID", "SINCE", "CONFIG")
        print_lines(*format_table(head, [_row(record, time.time()) for record in records]))
    else:
        log("no engine that specdeck started is running")
    for entry in entries:
        if isinstance(entry, Unreadable):
            log(f"unreadable: {entry.path}: {entry.reason}")


def record_as_json(entry: Record | Unreadable) -> Mapping[str, object]:
    """One entry as `ps --json` prints it."""
    if isinstance(entry, Unreadable):
        name = entry.path.stem
        return {"state": "unreadable", "name": name, "url": None, "reason": entry.reason}
    state = find_state(entry)
    pids = [] if state == "elsewhere" else [one.pid for one in process.members(entry.leader)]
    told = {k: v for k, v in entry.as_json().items() if k not in _INTERNAL}
    return {"state": state, **told, "processes": pids}


def find_state(record: Record) -> str:
    """`running`, `starting`, `orphans` when the server is dead and workers are not, `elsewhere`."""
    life = record.life()
    return "starting" if life == "running" and not record.serves() else life


def _row(record: Record, now: float) -> tuple[str, ...]:
    since = format_duration(max(0.0, now - record.started))
    model, config = format_value(record.model), format_value(record.config)
    state = find_state(record)
    pid = f"{record.pid} on {record.host or '?'}" if state == "elsewhere" else str(record.pid)
    return (record.name, state, record.url, model, pid, since, config)


@click.command("stop")
@click.argument("engine", metavar="NAME|URL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stop(engine: str, as_json: bool) -> int:
    """End an engine that specdeck started, all of its processes, and wait until it is gone."""
    registry = Registry(locations(os.environ).engines)
    record = registry.find(engine)
    if record is None:
        refuse_credentials(engine)
        raise UsageError(f"no engine {engine} that specdeck started", remedy="see `specdeck ps`")
    if record.life() == "elsewhere":
        raise record.elsewhere_error()
    count = len(process.members(record.leader))
    if not count:
        registry.clean()
        raise EngineError(f"{record.name} has ended already", remedy="see `specdeck ps`")
    reporter = StopReporter(record.name)
    work = partial(stop_engine, record, registry, on_progress=reporter)
    if code := wait_for_stop(record.name, work):
        return code
    last = reporter.last
    assert last is not None  # a stop ends with a step
    if as_json:
        data = {"name": record.name, "url": record.url, "processes": count}
        emit({**data, "killed": last.killed, "seconds": round(last.elapsed, 1)})
    else:
        how = "killed" if last.killed else "ended"
        print_lines(f"{record.name}: {count_processes(count)} {how} in {last.elapsed:.1f} s")
    return 0


def wait_for_stop(name: str, stop: Callable[[], Awaitable[None]]) -> int:
    """Runs the stop of an engine to its end; the exit code.

    Where a signal cuts it short, that is said: the engine may be asked, and not have ended.
    """

    async def work() -> int:
        await stop()
        return 0

    try:
        return event_loop.run(until_signal(work(), on_interrupt=lambda: how_to_go_on(name)))
    except KeyboardInterrupt:  # before the loop ran, or after it
        log(f"specdeck: interrupted: {how_to_go_on(name)}")
        return INTERRUPTED


def how_to_go_on(name: str) -> str:
    """Where it is told whether an engine has ended whose stop was cut short, and what ends it."""
    return f"{name} may still run: `specdeck ps` tells, `specdeck stop {name}` ends it"


def count_processes(count: int) -> str:
    """How many, in words.

    >>> count_processes(1), count_processes(3)
    ('1 process', '3 processes')
    """
    return f"{count} process" if count == 1 else f"{count} processes"


class StopReporter:
    """Says on stderr how an engine's end goes: after a second, then every 5 s."""

    def __init__(self, name: str) -> None:
        self.last: Stopping | None = None
        self._name = name
        self._due = 1.0

    def __call__(self, step: Stopping) -> None:
        """Takes note of one moment."""
        self.last = step
        if step.left and step.elapsed >= self._due:
            self._due = step.elapsed + EVERY_S
            how = "killing" if step.killed else "waiting for"
            log(f"{self._name}: {how} {count_processes(step.left)}, {step.elapsed:.0f} s")
