"""`specdeck check`: does the engine's speculative path still say what the target says?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from specdeck.console.cli.common import Finite, metrics_address_option, until_signal
from specdeck.console.cli.engines import key_option, token_option

_Command = TypeVar("_Command", bound=Callable[..., object])
_PROMPTS, _PROMPTS_SAMPLED = 200, 20
_TOKENS, _TOKENS_SAMPLED = 128, 4


class Share(click.ParamType[float]):
    """A share, as `1.5%` or `0.015`."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The share as a number from 0 to 1, both excluded."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{text} is no share, such as 1.5%", param, ctx)
        if not 0 < share < 1:
            self.fail(f"{text} is no share between 0% and 100%", param, ctx)
        return share


_FILE = click.Path(path_type=Path, dir_okay=False)
_COUNT = click.IntRange(min=1)
_OPTIONS = (
    # Arms.
    click.option("--reference", metavar="URL", help="Another engine to compare with; default: "
                 "the same engine with each request pinned to k = 0."),
    click.option("--hard", is_flag=True, help="Start the engine's config a second time, without "
                 "speculation, to compare with."),
    click.option("--model", metavar="NAME", help="Where the engine serves several."),
    # Prompts.
    click.option("--prompts", "source", default="code", metavar="FILE", show_default=True,
                 help="JSONL, or text with a prompt a line, or a set: code, chat, tools."),
    click.option("--limit", type=_COUNT, metavar="N",
                 help=f"Prompts; {_PROMPTS}, or {_PROMPTS_SAMPLED} with --sampled."),
    click.option("--max-tokens", type=_COUNT, metavar="N",
                 help=f"Of an answer; {_TOKENS}, or {_TOKENS_SAMPLED} with --sampled."),
    click.option("--ignore-eos", is_flag=True, help="Go on to --max-tokens."),
    # Verdict.
    click.option("--max-mismatch", type=Share(), default="1.5%", show_default=True,
                 help="The rate of differing outputs that is still good."),
    click.option("--calls", type=_COUNT, default=5, show_default=True,
                 help="Calls in a session, for the risk that adds up."),
    # Running.
    click.option("--streams", type=click.IntRange(1, 512), default=8, show_default=True,
                 help="Requests at once on each engine."),
    click.option("--gentle", is_flag=True, help="Keep out of production's way; takes longer."),
    click.option("--private", is_flag=True, help="Store hashes only: no token of an answer."),
    click.option("--fresh", is_flag=True, help="Do not go on with a run that was cut short."),
    click.option("--patience", type=Finite(min=0), default=120.0, metavar="S",
                 show_default=True, help="How long an engine that is away is waited for."),
    # Temperature > 0.
    click.option("--sampled", is_flag=True, help="Compare distributions at "
                 "--temperature; a run that is cut short begins anew."),
    click.option("--samples", type=click.IntRange(8, 4096), default=128, show_default=True,
                 help="Continuations of each prompt and arm, with --sampled."),
    click.option("--temperature", type=Finite(0, 5, min_open=True), default=1.0,
                 show_default=True, help="With --sampled."),
    # Reports.
    click.option("--json", "as_json", is_flag=True, help="One JSON object."),
    click.option("--report", "reports", multiple=True, metavar="FILE", type=_FILE,
                 help="Also a file: .json, .xml (JUnit) or .md; may be given again."),
    click.option("--bundle", metavar="FILE", type=_FILE,
                 help="A page that reproduces the gravest case, or --case."),
    click.option("--history", is_flag=True, help="Check nothing: show the checks so far."),
    click.option("--case", type=_COUNT, metavar="N", help="The prompt to bundle."),
    # Canary.
    click.option("--every", metavar="T", help="Check again and again, such as every 24h."),
    click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="P",
                 help="Serve the last check to Prometheus."),
    metrics_address_option,
    click.option("--metrics-file", type=_FILE, metavar="FILE",
                 help="The same for node_exporter's textfile collector."),
    click.option("--trip", is_flag=True, help="Open the engine's breaker when the verdict is "
                 "fail: target-only until it is reset. Needs the admin token."),
    token_option,
    key_option,
    click.option("--reference-api-key-env", metavar="NAME", help="The same for --reference."),
)  # fmt: skip


def _with_options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("check")
@click.argument("engine", metavar="URL")
@_with_options
def command(**options: Any) -> int:
    """Compare an engine's speculative path with the target alone, token by token.

    Asks both arms and each arm against itself, and weighs what differs. Exit code 0 is a
    pass, 1 a fail or too little to tell.
    """
    from specdeck.console.cli import checking
    from specdeck.engine.divergence.prompts import load_prompts

    checking.refuse_nonsense(options)
    if options["history"]:
        from specdeck.console.cli.check_history import shown

        return shown(options)
    options["limit"] = options["limit"] or (_PROMPTS_SAMPLED if options["sampled"] else _PROMPTS)
    options["max_tokens"] = options["max_tokens"] or (
        _TOKENS_SAMPLED if options["sampled"] else _TOKENS
    )
    found = load_prompts(options["source"], options["limit"])
    checking.refuse_case(options, found)
    work = checking.sampled if options["sampled"] else checking.once
    if options["every"] is not None:
        work = checking.repeated
    return asyncio.run(until_signal(work(options, found)))
