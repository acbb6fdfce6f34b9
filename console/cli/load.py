"""`specdeck load`: puts load on an engine until interrupted."""

from __future__ import annotations

import sys

import click

from specdeck.console.cli.engines import OWN_KEY, access, key_option
from specdeck.engine.demo.load import main
from specdeck.engine.demo.load_process import PROFILES


@click.command("load")
@click.argument("engine", metavar="URL")
@click.option("--profile", type=click.Choice(PROFILES), default="predictable", show_default=True)
@click.option("--streams", type=click.IntRange(1, 512), default=4, show_default=True)
@key_option
def command(engine: str, profile: str, streams: int, api_key_env: str | None) -> None:
    """Put streams of completions on an engine until interrupted; counts go to stdout."""
    to = access(engine, api_key_env=api_key_env)
    words = [to.url, "--profile", profile, "--streams", str(streams), "--no-stdin"]
    if to.api_key is not None:
        words += ["--api-key-env", api_key_env or OWN_KEY]
    sys.exit(main(words, check_port=to.check_port))
