"""`specdeck run`: starts an engine from a config, then the console on it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from specdeck.console.cli.common import read_last_start
from specdeck.console.cli.output import log
from specdeck.engine.errors import ConfigError, Place, UsageError
from specdeck.engine.paths import locations

if TYPE_CHECKING:
    from specdeck.engine.launch.launcher import Launch

Port = int | Literal["auto"]


def port(value: str) -> Port:
    """A port number, or `auto` for any free one; click turns the ValueError into its own.

    >>> port("8000"), port("auto")
    (8000, 'auto')
    """
    if value == "auto":
        return "auto"
    number = int(value)
    if not 0 <= number <= 65535:
        raise ValueError(value)
    return number


@click.command("run")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--headless", is_flag=True, help="JSON lines instead of the console.")
@click.option("--detach", is_flag=True, help="Leave the engine running once it is ready.")
@click.option("--port", "wanted", type=port, metavar="P", help="The port, or auto for a free one.")
def command(config: Path, headless: bool, detach: bool, wanted: Port | None) -> int:
    """Start an engine from a config, then the console on it.

    With --headless its samples go to stdout until SIGTERM or SIGINT, which end the
    engine too. With --detach its record goes to stdout when it is ready.
    """
    if not (headless or detach):
        wants_terminal("--headless or --detach")
    launch = prepared(config, port=wanted, environment=os.environ)
    if detach:
        from specdeck.console.cli.headless import detached

        return asyncio.run(detached(launch))
    if headless:
        from specdeck.console.cli.headless import flown

        return asyncio.run(flown(launch))
    from specdeck.console.cli.flight import aboard

    return aboard(launch)


def prepared(path: Path, *, port: Port | None, environment: Mapping[str, str]) -> Launch:
    """The start of the engine of a config that was found good.

    Says every notice and warning on stderr; raises ConfigErrors for all that is wrong.
    """
    from specdeck import __version__
    from specdeck.console.cli.headless import answers
    from specdeck.engine.config.loader import load
    from specdeck.engine.launch.launcher import Launch
    from specdeck.engine.launch.preflight import findings, raise_errors

    config = load(path)
    if config.model is None:
        raise ConfigError(
            "this config only attaches", place=Place(path), remedy=f"use `specdeck attach {path}`"
        )
    wanted = config.port if port is None else port
    number = None if wanted in (0, "auto") else int(wanted or 8000)
    found = findings(config, port=number, environment=environment)
    for finding in found:
        if finding.level in ("notice", "warning"):
            log(f"{finding.level}: {finding.line()}")
    raise_errors(config, found)
    return Launch(
        config,
        locations=locations(environment),
        answers=answers,
        environment=environment,
        port=port,
        last_elapsed=read_last_start(path),
        version=__version__,
    )


def wants_terminal(otherwise: str) -> None:
    """UsageError unless there is a terminal for the console."""
    # Textual draws on stderr, so that a redirected one would take the screen with it.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("the console wants a terminal", remedy=f"give {otherwise}")
