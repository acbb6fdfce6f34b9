"""`specdeck attach`: the console on engines that run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from specdeck.console.cli.common import (
    Finite,
    black_box_folder,
    defer_collection,
    read_settings,
    record_option,
    require_terminal,
    run_console,
    terminal_options,
    theme_folders,
)
from specdeck.console.cli.engines import (
    Access,
    access,
    choose_key_variable,
    is_config,
    key_option,
    token_option,
)
from specdeck.console.cli.expectations import (
    NO_EXPECTATIONS,
    Expectations,
    pin_option,
    watches,
    webhook_option,
)
from specdeck.console.cli.incident_key import incident_writer
from specdeck.console.cli.operator import find_operator
from specdeck.engine.client import event_loop
from specdeck.engine.client.attach import AttachedEngine, UnopenedClient
from specdeck.engine.errors import ConfigError, Place, UsageError


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """What the command line, or a config in its place, asks for: the command's options."""

    engines: tuple[str, ...]
    control: bool = False
    reference: str | None = None
    api_key_env: str | None = None
    token_file: Path | None = None
    interval: float | None = None
    expectations: Expectations = NO_EXPECTATIONS


@click.command("attach")
@click.argument("engines", metavar="URL…", nargs=-1, required=True)
@click.option("--control", is_flag=True, help="Arm control at once; without it, read-only.")
@click.option("--reference", metavar="URL", help="A target-only engine to show beside them.")
@click.option("--interval", type=Finite(min=0.1), metavar="S", help="Seconds between samples.")
@pin_option
@webhook_option
@record_option
@terminal_options
@key_option
@token_option
def command(pin: Path | None, webhook_env: str | None, **options: Any) -> int:
    """Open the console on engines that already run: URLs, names from `ps`, or a config.

    Only reads until control is armed. Quitting leaves the engines as they are.
    """
    require_terminal("`specdeck watch` to a pipe")
    defer_collection()
    asked = AttachOptions(**options, expectations=Expectations(pin, webhook_env))
    return event_loop.run(attach_console(read_attach_block(asked)))


def read_attach_block(options: AttachOptions) -> AttachOptions:
    """`options`, with a config's `attach` block in place of its file; raises ConfigError."""
    files = [name for name in options.engines if is_config(name)]
    if not files:
        return options
    if len(options.engines) > 1:
        raise UsageError("a config names its engines itself", remedy="give either it or URLs")
    from specdeck.engine.config.loader import load

    config = load(Path(files[0]))
    block = config.attach
    if block is None:
        remedy = f"use `specdeck run {files[0]}`"
        raise ConfigError("no `attach` block", place=Place(config.path), remedy=remedy)
    return replace(
        options,
        engines=block.engines,
        control=options.control or block.control,
        reference=options.reference or block.reference,
        api_key_env=choose_key_variable(options.api_key_env, config),
        expectations=options.expectations.over(Expectations.of(config)),
    )


async def attach_console(options: AttachOptions) -> int:
    """Opens the console; the exit code.

    A single engine that does not answer is an error, and the console closes. Several are opened
    all the same: that one of them is down is what the console shows.
    """
    ours = [_access(name, options) for name in options.engines]
    reference = None if options.reference is None else _access(options.reference, options)
    asked = ours if reference is None else [*ours, reference]
    engines = [connect(to, control=options.control) for to in ours]
    if reference is not None:
        engines.append(connect(reference, control=False, name="reference"))
    from specdeck.console.app import Console
    from specdeck.console.cli.audit import UserAudit
    from specdeck.console.cli.check_context import open_check_context

    chosen = read_settings()
    if options.interval is not None:
        chosen = replace(chosen, interval=options.interval)
    app = Console(
        engines,
        settings=chosen,
        who=find_operator(),
        audit=UserAudit(),
        check=open_check_context(
            {to.url: to.api_key for to in asked},
            known=asked,
            reference=reference.url if reference else None,
        ),
        watches=watches(
            [to.url for to in ours],
            options.expectations,
            api_key_env=options.api_key_env,
            token_file=options.token_file,
            known=asked,
        ),
        themes=theme_folders(),
        black_boxes=black_box_folder(),
        incident=incident_writer(asked),
        command_options={to.url: to.options for to in asked},
        opening=engines[0].require_vllm if len(engines) == 1 else None,
    )
    code = await run_console(app, engines)
    if app.failure is not None:
        raise app.failure
    return code


def _access(engine: str, options: AttachOptions) -> Access:
    return access(engine, api_key_env=options.api_key_env, token_file=options.token_file)


def connect(to: Access, *, control: bool, name: str | None = None) -> AttachedEngine:
    """An engine that runs already; raises Unauthorized for control without a token.

    Nothing is asked of it yet.
    """
    # Certificates are read at once, so that broken ones are no matter of the console.
    secure = to.url.startswith("https:")
    client = to.client() if secure else UnopenedClient(to.url, to.token, to.client)
    found = AttachedEngine(client, name=name or (to.record.name if to.record else None))
    if control:
        found.arm()
    return found
