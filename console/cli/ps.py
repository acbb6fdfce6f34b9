"""`specdeck ps`: the engines that specdeck started."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import click

from specdeck.console.cli.output import duration, emit, log, table
from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record, Registry, Unreadable
from specdeck.engine.paths import locations


@click.command("ps")
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def command(as_json: bool) -> None:
    """List the engines that specdeck started and that still have processes."""
    registry = Registry(locations(os.environ).engines)
    registry.clean()
    entries = registry.all()
    if as_json:
        emit([as_data(entry) for entry in entries])
        return
    records = [entry for entry in entries if isinstance(entry, Record)]
    if records:
        head = ("NAME", "STATE", "URL", "MODEL", "PID", "SINCE", "CONFIG")
        click.echo(table(head, [_row(record, time.time()) for record in records]))
    else:
        log("no engine that specdeck started is running")
    for entry in entries:
        if isinstance(entry, Unreadable):
            log(f"unreadable: {entry.path}: {entry.reason}")


def as_data(entry: Record | Unreadable) -> Mapping[str, object]:
    """One entry as `ps --json` prints it."""
    if isinstance(entry, Unreadable):
        name = entry.path.stem
        return {"state": "unreadable", "name": name, "url": None, "reason": entry.reason}
    pids = [one.pid for one in process.members(entry.leader)]
    told = {k: v for k, v in entry.as_json().items() if k not in ("born", "boot", "schema")}
    return {"state": state(entry), **told, "processes": pids}


def state(record: Record) -> str:
    """`running`, `starting`, or `orphans` when the server is dead and workers are not."""
    life = record.life()
    if life != "running" or record.ready is not None or record.port is None:
        return life
    from specdeck.engine.launch.ports import port_taken

    # vLLM listens only once it can answer; asking the port needs no request.
    host = urlsplit(record.url).hostname or "127.0.0.1"
    return "running" if port_taken(host, record.port) else "starting"


def _row(record: Record, now: float) -> tuple[str, ...]:
    since = duration(max(0.0, now - record.started))
    model, config = record.model or "–", record.config or "–"
    return (record.name, state(record), record.url, model, str(record.pid), since, config)
