"""`specdeck attach`: the console on engines that already run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specdeck.console.cli.engines import Access, access, key_option, token_option
from specdeck.console.cli.fingerprint_book import NOTHING_SAID, Expected, pin_option, webhook_option
from specdeck.console.cli.numbers import Finite
from specdeck.console.cli.run import wants_terminal
from specdeck.engine.errors import ConfigError, Place, UsageError

if TYPE_CHECKING:
    from specdeck.engine.client.attach import AttachedEngine


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line, or a config in its place, asks for."""

    engines: tuple[str, ...]
    control: bool = False
    reference: str | None = None
    api_key_env: str | None = None
    token_file: Path | None = None
    interval: float | None = None
    expected: Expected = NOTHING_SAID


@click.command("attach")
@click.argument("engines", metavar="URL…", nargs=-1, required=True)
@click.option("--control", is_flag=True, help="Arm control at once; without it, read-only.")
@click.option("--reference", metavar="URL", help="A target-only engine to look at beside them.")
@click.option("--interval", type=Finite(min=0.1), metavar="S", help="Seconds between samples.")
@pin_option
@webhook_option
@key_option
@token_option
def command(
    engines: tuple[str, ...],
    control: bool,
    reference: str | None,
    interval: float | None,
    pin: Path | None,
    webhook_env: str | None,
    api_key_env: str | None,
    token_file: Path | None,
) -> int:
    """Open the console on engines that already run: URLs, names from `ps`, or a config.

    Only reads until control is armed. Quitting leaves the engines as they are.
    """
    wants_terminal("`specdeck watch` to a pipe")
    expected = Expected(pin, webhook_env)
    wanted = Wanted(engines, control, reference, api_key_env, token_file, interval, expected)
    return asyncio.run(flown(from_config(wanted)))


def from_config(wanted: Wanted) -> Wanted:
    """`wanted`, with a config's `attach` block in place of its file; raises ConfigError."""
    from specdeck.console.cli.doctor import is_config

    files = [name for name in wanted.engines if is_config(name)]
    if not files:
        return wanted
    if len(wanted.engines) > 1:
        raise UsageError("a config names its engines itself", remedy="give either it or URLs")
    from specdeck.engine.config.loader import load

    config = load(Path(files[0]))
    block = config.attach
    if block is None:
        remedy = f"use `specdeck run {files[0]}`"
        raise ConfigError("no `attach` block", place=Place(config.path), remedy=remedy)
    return replace(
        wanted,
        engines=block.engines,
        control=wanted.control or block.control,
        reference=wanted.reference or block.reference,
        api_key_env=wanted.api_key_env or block.api_key_env,
        expected=wanted.expected.over(Expected.of(config)),
    )


async def flown(wanted: Wanted) -> int:
    """Opens the console; the exit code.

    A single engine that does not answer is an error at once. Several are opened all
    the same: that one of them is down is what the console shows.
    """
    from specdeck.console.cli.flight import shown

    ours = [_access(name, wanted) for name in wanted.engines]
    reference = None if wanted.reference is None else _access(wanted.reference, wanted)
    engines = opened(ours, reference, control=wanted.control)
    if len(engines) == 1:
        await engines[0].client.version()
    from specdeck.console.app import Console
    from specdeck.console.cli.audit import note_change
    from specdeck.console.cli.bench import bench
    from specdeck.console.cli.fingerprint_book import book
    from specdeck.console.cli.operator import operator, settings, themes

    chosen = settings()
    if wanted.interval is not None:
        chosen = replace(chosen, interval=wanted.interval)
    app = Console(
        engines,
        settings=chosen,
        who=operator(),
        on_change=note_change,
        bench=bench(
            {to.url: to.api_key for to in (*ours, *([reference] if reference else []))},
            reference=reference.url if reference else None,
        ),
        book=book(
            [to.url for to in ours],
            wanted.expected,
            api_key_env=wanted.api_key_env,
            token_file=wanted.token_file,
        ),
        themes=themes(),
    )
    return await shown(app, engines)


def opened(
    ours: Iterable[Access], reference: Access | None, *, control: bool
) -> Sequence[AttachedEngine]:
    """The engines, the reference last; nothing is asked of them yet."""
    from specdeck.console.cli.flight import attached

    found = [attached(to, control=control) for to in ours]
    if reference is not None:
        found.append(attached(reference, control=False, name="reference"))
    return found


def _access(engine: str, wanted: Wanted) -> Access:
    return access(engine, api_key_env=wanted.api_key_env, token_file=wanted.token_file)
