"""`specdeck load`: puts load on an engine until interrupted."""

from __future__ import annotations

import sys

import click

from specdeck.console.cli.common import Whole, until_signal
from specdeck.console.cli.engines import OWN_KEY, Access, access, key_option
from specdeck.console.cli.first_and_last import INTERRUPTED
from specdeck.engine.client import event_loop
from specdeck.engine.demo.load import find_model, main
from specdeck.engine.demo.load_process import PROFILES


@click.command("load")
@click.argument("engine", metavar="URL")
@click.option("--profile", type=click.Choice(PROFILES), default="predictable", show_default=True)
@click.option("--streams", type=Whole(1, 512), default=4, show_default=True)
@key_option
def command(engine: str, profile: str, streams: int, api_key_env: str | None) -> None:
    """Put streams of completions on an engine until interrupted; counts go to stdout.

    An engine that goes away meanwhile is waited for.
    """
    to = access(engine, api_key_env=api_key_env)
    key = None if to.api_key is None else api_key_env or OWN_KEY
    if code := event_loop.run(until_signal(_require_model(to))):
        sys.exit(code)
    words = [to.url, "--profile", profile, "--streams", str(streams), "--no-stdin"]
    if key is not None:
        words += ["--api-key-env", key]
    # Without its stdin, a signal alone ends it well.
    sys.exit(main(words, check_port=to.check_port) or INTERRUPTED)


async def _require_model(to: Access) -> int:
    """Raises EngineError where nothing serves a model: at the start that is a wrong address."""
    client = to.client()
    try:
        await find_model(client)
    finally:
        await client.close()
    return 0
