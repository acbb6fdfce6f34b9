"""`specdeck replay`: the console on a recording."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from specdeck.console.cli.numbers import Finite
from specdeck.console.cli.output import emit
from specdeck.console.cli.run import wants_terminal
from specdeck.engine.metrics.recording import Recording, read_recording


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The samples as JSON lines, all at once.")
@click.option(
    "--speed",
    type=Finite(min=0.01),
    default=1.0,
    metavar="N",
    show_default=True,
    help="Times the pace at which it was recorded.",
)
def command(file: Path, as_json: bool, speed: float) -> int:
    """Show a recording in the console: what `specdeck watch URL --json > FILE` has written.

    What `run --headless` and `demo --headless` print is a recording as well. Lines of several
    engines become several engines. Nothing can be changed in one.
    """
    if not as_json:
        wants_terminal("`specdeck replay FILE --json` to a pipe")
    found = read_recording(file)
    return printed(found) if as_json else asyncio.run(shown(found, speed))


def printed(found: Recording) -> int:
    """Prints every sample, checked, in its order."""
    from specdeck.engine.metrics.recording import read_lines

    for line in read_lines(found.path):
        emit(line)
    return 0


async def shown(found: Recording, speed: float) -> int:
    """Opens the console; the exit code."""
    from specdeck.console.app import Console
    from specdeck.console.cli import flight
    from specdeck.console.cli.operator import operator, settings, themes
    from specdeck.engine.metrics.recording import ReplayedEngine

    engines = [ReplayedEngine(found, url, speed=speed) for url in found.engines]
    app = Console(engines, settings=settings(), who=operator(), themes=themes())
    return await flight.shown(app, engines)
