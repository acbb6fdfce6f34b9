"""`specdeck doctor`: looks at this machine, at a config, or at an engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from specdeck.console.cli.engines import Access, access, is_config, key_option
from specdeck.console.cli.output import print_verdict
from specdeck.engine.client import event_loop
from specdeck.engine.client.address import is_local
from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.client.token import TOKEN_REMEDY
from specdeck.engine.config.loader import load as load_config
from specdeck.engine.errors import ConfigError, EngineError, Unauthorized, Unreachable
from specdeck.engine.launch.machine import inspect_machine
from specdeck.engine.launch.preflight import Finding, build_findings, findings
from specdeck.engine.paths import HOME_VARIABLE, Locations, locations
from specdeck.engine.protocol.messages import Capability
from specdeck.engine.text import format_bytes

MARKS = {"ok": "✓", "notice": "·", "warning": "!", "error": "✗"}
ASCII_MARKS = {"ok": "+", "notice": "-", "warning": "!", "error": "x"}
"""For an output that cannot spell the others."""


@click.command("doctor")
@click.argument("subject", metavar="[CONFIG|URL]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
@key_option
def command(subject: str | None, as_json: bool, api_key_env: str | None) -> int:
    """Check this machine, a config before it is started, or a running engine.

    Exits with 2 when a config or this machine has an error, 3 when an engine cannot be reached.
    """
    if subject is None:
        found = check_machine()
    elif is_config(subject):
        found = check_config(Path(subject))
    else:
        found = event_loop.run(check_engine(access(subject, api_key_env=api_key_env)))
    marks = MARKS if _is_utf() else ASCII_MARKS
    print_verdict(
        [finding.as_json() for finding in found],
        lambda: [f"{marks[finding.level]} {finding.line()}" for finding in found],
        as_json=as_json,
    )
    return 2 if any(finding.level == "error" for finding in found) else 0


def check_config(path: Path) -> list[Finding]:
    """What is to be said of a config before it is started: every error, or the preflight.

    Raises ConfigError for a file that cannot be read at all.
    """
    try:
        found = load_config(path)
    except ConfigError as error:
        if error.place is None or error.place.line is None:
            raise
        return [
            Finding("error", "config", one.message, one.remedy, one.place) for one in error.errors
        ]
    return findings(found, port=found.port or 8000, environment=os.environ)


def check_machine() -> list[Finding]:
    """What is to be said of this machine."""
    here = inspect_machine(os.environ)
    found = list(build_findings(here))
    for gpu in here.gpus:
        free = f"{format_bytes(gpu.free)} of {format_bytes(gpu.total)} free"
        found.append(Finding("ok", "gpu", f"{gpu.name}, {free}"))
    if not here.gpus:
        found.append(Finding("notice", "gpu", "no NVIDIA GPU answers"))
    if here.memory_free is not None:
        found.append(Finding("ok", "memory", f"{format_bytes(here.memory_free)} free"))
    return [*found, *check_folders(locations(os.environ)), *check_terminal()]


def check_folders(of: Locations) -> Iterator[Finding]:
    """What is to be said of the folders that specdeck keeps its files in."""
    costs = {
        of.state: "no engine can be started",
        of.data: "no change, check or pin can be kept",
        of.cache: "no model can be deepened",
    }
    wrong = {folder: cost for folder, cost in costs.items() if not _can_write(folder)}
    for folder, cost in wrong.items():
        remedy = f"set {HOME_VARIABLE} to a folder that can be written"
        yield Finding("warning", "files", f"{folder} cannot be written: {cost}", remedy)
    if not wrong:
        yield Finding("ok", "files", f"kept in {of.state}, {of.data} and {of.cache}")


def _can_write(folder: Path) -> bool:
    """Whether files can be made in `folder`, or it itself where it is not there yet."""
    there = next((one for one in (folder, *folder.parents) if os.path.lexists(one)), folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _is_utf() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()


def check_terminal() -> Iterator[Finding]:
    """What is to be said of the terminal that the console would use."""
    if not sys.stdout.isatty():
        yield Finding("notice", "terminal", "stdout is none: only commands without a screen work")
        return
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    small = columns < 80 or lines < 24
    message = f"{columns}x{lines}, TERM={os.environ.get('TERM', '')}"
    remedy = "80x24 or more shows everything" if small else None
    yield Finding("warning" if small else "ok", "terminal", message, remedy)
    if not _is_utf():
        encoding = f"encoding {sys.stdout.encoding}"
        yield Finding("warning", "terminal", encoding, "export LANG=C.UTF-8")


async def check_engine(to: Access) -> list[Finding]:
    """What is to be said of a running engine; raises EngineError when it cannot be reached."""
    client = to.client()
    try:
        return await _ask(client)
    finally:
        await client.close()


async def _check_exposure(client: EngineClient) -> list[Finding]:
    """Who else can read this engine, and send it requests, where it asks for no key."""
    if client.keyed:
        return []
    found = []
    if not is_local(client.url):
        message = "no API key is asked for: whoever reaches its address can use the engine"
        remedy = "start it with VLLM_API_KEY, or on the loopback address"
        found.append(Finding("warning", "key", message, remedy))
    if await client.admits_pages():
        message = "any web page in a browser that reaches the engine can read it and use it"
        remedy = "start it with allowed_origins: [], or with VLLM_API_KEY"
        found.append(Finding("warning", "allowed_origins", message, remedy))
    return found


def _affirm(one: Capability) -> str:
    """That something can be done, how that is known, and what it costs.

    >>> _affirm(Capability("live_k", True, how="read in source"))
    'yes (read in source)'
    """
    known = f"yes ({one.how})" if one.how else "yes"
    return f"{known}: {one.reason}" if one.reason else known


async def _ask(client: EngineClient) -> list[Finding]:
    found = [Finding("ok", "engine", f"{client.url} is vLLM {await client.version()}")]
    try:
        models = ", ".join(await client.models())
        found.append(Finding("ok", "models", models or "none"))
        found += await _check_exposure(client)
        state = await client.state()
    except (Unauthorized, Unreachable):  # such as an API server whose engine core hangs
        raise
    except EngineError as error:
        return [*found, Finding("warning", "control", str(error), error.remedy)]
    method = state.method or "no speculation"
    about = f"{state.plugin}, {method}, {state.runner} runner, k {state.k} of {state.k_max}"
    found.append(Finding("ok", "plugin", about))
    for one in state.capabilities:
        if one.available:
            found.append(Finding("ok", one.name, _affirm(one)))
        else:
            found.append(Finding("notice", one.name, one.reason or "no", one.remedy))
    if client.token() is None:
        found.append(
            Finding("notice", "token", "without the admin token this is read-only", TOKEN_REMEDY)
        )
    return found
