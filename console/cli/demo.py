"""`specdeck demo`: the shipped model pair on a real engine, under load, in the console."""

from __future__ import annotations

import asyncio
import os
from importlib.resources import files
from pathlib import Path

import click

from specdeck.console.cli.numbers import Finite
from specdeck.console.cli.run import Port, port, prepared, wants_terminal
from specdeck.engine.demo.load_process import PROFILES, LoadProcess
from specdeck.engine.errors import SpecdeckError


@click.command("demo")
@click.option("--headless", is_flag=True, help="JSON lines instead of the console.")
@click.option("--seconds", type=Finite(min=1.0), metavar="N", help="With --headless.")
@click.option(
    "--port",
    "wanted",
    type=port,
    default="auto",
    metavar="P",
    show_default=True,
    help="The port, or auto for a free one.",
)
@click.option(
    "--load",
    "profile",
    type=click.Choice(PROFILES),
    default="mixed",
    show_default=True,
    help="What to ask for.",
)
def command(headless: bool, seconds: float | None, wanted: Port, profile: str) -> int:
    """Start the shipped model pair, put load on it, and open the console.

    Everything is real but small: the models know a little Python, the engine is vLLM.
    """
    if not headless:
        if seconds is not None:
            raise click.UsageError("--seconds needs --headless")
        wants_terminal("--headless")
    launch = prepared(config(), port=wanted, environment=os.environ)
    key = "VLLM_API_KEY" if os.environ.get("VLLM_API_KEY") else None
    load = LoadProcess(launch.url, profile, environment=os.environ, api_key_env=key)
    if headless:
        from specdeck.console.cli.headless import flown

        return asyncio.run(flown(launch, seconds=seconds, load=load))
    from specdeck.console.cli.flight import aboard

    return aboard(launch, load=load)


def config() -> Path:
    """The shipped config."""
    path = Path(str(files("specdeck") / "sample_configs" / "demo.yaml"))
    if not path.is_file():
        raise SpecdeckError(f"{path} is missing", remedy="install specdeck again")
    return path
