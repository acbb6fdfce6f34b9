"""`specdeck replay`: the console on a recording."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from specdeck.console.cli.common import (
    Finite,
    defer_collection,
    read_settings,
    require_terminal,
    run_console,
    terminal_options,
    theme_folders,
)
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import emit
from specdeck.engine.metrics.recording import Recording, ReplayedEngine, read_lines, read_recording


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The samples as JSON lines, all at once.")
@click.option(
    "--speed",
    type=Finite(min=0.01),
    default=1.0,
    metavar="N",
    show_default=True,
    help="Playback speed, as a multiple of the recorded one.",
)
@terminal_options
def command(file: Path, as_json: bool, speed: float) -> int:
    """Show a recording in the console: what `specdeck watch URL --json > FILE` has written.

    What `run --headless` and `demo --headless` print is a recording as well. Lines of several
    engines become several engines. Nothing can be changed in one.
    """
    if not as_json:
        require_terminal("`specdeck replay FILE --json` to a pipe")
        defer_collection()
    found = read_recording(file)
    if not as_json:
        return asyncio.run(replay_recording(found, speed))
    for line in read_lines(found.path):
        emit(line)
    return 0


async def replay_recording(found: Recording, speed: float) -> int:
    """Opens the console; the exit code."""
    from specdeck.console.app import Console

    engines = [ReplayedEngine(found, url, speed=speed) for url in found.engines]
    app = Console(engines, settings=read_settings(), who=find_operator(), themes=theme_folders())
    return await run_console(app, engines)
