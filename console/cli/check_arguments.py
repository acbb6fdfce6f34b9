"""What can be typed after `specdeck check`: its options as one value, and what makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from specdeck.console.cli.common import Finite, Whole, metrics_address_option
from specdeck.console.cli.engines import Access, access, key_option, token_option
from specdeck.console.cli.file_options import OutputFile
from specdeck.engine.divergence import report
from specdeck.engine.divergence.prompts import BUNDLED, MOST, PromptSet
from specdeck.engine.divergence.sampled import Sampling
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.check import CheckOptions
from specdeck.engine.text import parse_duration

_Command = TypeVar("_Command", bound=Callable[..., object])
_PROMPTS, _PROMPTS_SAMPLED = 200, 20
_TOKENS, _TOKENS_SAMPLED = 128, 16


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


_FILE = OutputFile()
COUNT = Whole(1, MOST)
"""Of prompts, tokens or calls."""
_OPTIONS = (
    # Arms.
    click.option("--reference", metavar="URL", help="Another engine to compare with; default: "
                 "the same engine with each request pinned to k = 0."),
    click.option("--hard", is_flag=True, help="Start the engine's config a second time, without "
                 "speculation, to compare with."),
    click.option("--model", metavar="NAME", help="Where the engine serves several models."),
    # Prompts.
    click.option("--prompts", "source", default="code", metavar="FILE", show_default=True,
                 help="JSONL, or text with a prompt a line, or a set: code, chat, tools."),
    click.option("--limit", type=COUNT, metavar="N",
                 help=f"Prompts; {_PROMPTS}, or {_PROMPTS_SAMPLED} with --sampled."),
    click.option("--max-tokens", type=COUNT, metavar="N",
                 help=f"Of an answer; {_TOKENS}, or {_TOKENS_SAMPLED} with --sampled."),
    click.option("--ignore-eos", is_flag=True, help="Ignore end-of-sequence tokens."),
    # Verdict.
    click.option("--max-mismatch", type=Share(), default="1.5%", show_default=True,
                 help="The highest acceptable rate of differing outputs."),
    click.option("--calls", type=COUNT, default=5, show_default=True,
                 help="Calls per session, for the risk that one of them differs."),
    # Running.
    click.option("--streams", type=Whole(1, 512), default=8, show_default=True,
                 help="Requests at once on each engine."),
    click.option("--gentle", is_flag=True, help="Spare production; takes longer."),
    click.option("--private", is_flag=True, help="Store hashes only: no token of an answer."),
    click.option("--fresh", is_flag=True, help="Do not resume a run that was cut short."),
    click.option("--patience", type=Finite(min=0), default=120.0, metavar="S",
                 show_default=True, help="Seconds to wait for an engine that is away, and for "
                 "an answer to begin: a minute at least."),
    # Temperature > 0.
    click.option("--sampled", is_flag=True, help="Compare distributions at "
                 "--temperature; a run that is cut short starts over."),
    click.option("--samples", type=Whole(8, 4096), default=96, show_default=True,
                 help="Continuations of each prompt and arm, with --sampled."),
    click.option("--temperature", type=Finite(0, 5, min_open=True), default=1.0,
                 show_default=True, help="With --sampled."),
    # Reports.
    click.option("--json", "as_json", is_flag=True, help="One JSON object."),
    click.option("--report", "reports", multiple=True, metavar="FILE", type=_FILE,
                 help="Also a file: .json, .xml (JUnit) or .md; may be given again."),
    click.option("--bundle", metavar="FILE", type=_FILE,
                 help="A page that reproduces the most serious case, or --case."),
    click.option("--history", is_flag=True, help="Show earlier checks instead of running one."),
    click.option("--case", type=COUNT, metavar="N", help="The prompt to bundle."),
    # Canary.
    click.option("--every", metavar="T", help="Repeat the check, such as every 24h."),
    click.option("--canary", is_flag=True, help="Judge this check as one night of many: exit "
                 "code 1 when differences became more frequent, or a defect is proven."),
    click.option("--strict", is_flag=True, help="A canary that has seen too few nights is exit "
                 "code 1 too."),
    click.option("--new-baseline", is_flag=True, help="The canary forgets earlier nights."),
    click.option("--metrics-port", type=Whole(1, 65535), metavar="P",
                 help="Serve the last outcome to Prometheus on this port."),
    metrics_address_option,
    click.option("--metrics-file", type=_FILE, metavar="FILE",
                 help="The same for node_exporter's textfile collector."),
    click.option("--trip", is_flag=True, help="Open the engine's breaker when the verdict is "
                 "fail: target-only until it is reset. Needs the admin token."),
    token_option,
    key_option,
    click.option("--reference-api-key-env", metavar="NAME", help="The same for --reference."),
)  # fmt: skip


def add_options(command: _Command) -> _Command:
    """The command with all of its options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class CheckArguments:
    """What was typed; its fields are the command's options."""

    engine: str
    reference: str | None = None
    hard: bool = False
    model: str | None = None
    source: str = "code"
    limit: int | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False
    max_mismatch: float = 0.015
    calls: int = 5
    streams: int = 8
    gentle: bool = False
    private: bool = False
    fresh: bool = False
    patience: float = 120.0
    sampled: bool = False
    samples: int = 96
    temperature: float = 1.0
    as_json: bool = False
    reports: tuple[Path, ...] = ()
    bundle: Path | None = None
    history: bool = False
    case: int | None = None
    every: str | None = None
    canary: bool = False
    strict: bool = False
    new_baseline: bool = False
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    metrics_file: Path | None = None
    trip: bool = False
    token_file: Path | None = None
    api_key_env: str | None = None
    reference_api_key_env: str | None = None

    @property
    def is_canary(self) -> bool:
        """Whether the check is judged as one night of many."""
        return self.canary or self.every is not None

    @property
    def read_files(self) -> tuple[Path, ...]:
        """The files that are read for it, which no report may be written over."""
        return () if self.source in BUNDLED else (Path(self.source),)

    @property
    def prompt_limit(self) -> int:
        """The most prompts."""
        return self.limit or (_PROMPTS_SAMPLED if self.sampled else _PROMPTS)

    @property
    def token_limit(self) -> int:
        """The most tokens of an answer."""
        return self.max_tokens or (_TOKENS_SAMPLED if self.sampled else _TOKENS)

    def options(self) -> CheckOptions:
        """What is asked of the check."""
        return CheckOptions(
            prompts=self.prompt_limit,
            max_tokens=self.token_limit,
            ignore_eos=self.ignore_eos,
            threshold=self.max_mismatch,
            streams=self.streams,
            gentle=self.gentle,
            private=self.private,
            fresh=self.fresh,
            new_baseline=self.new_baseline,
            judge="canary" if self.is_canary else "verdict",
            strict=self.strict,
            calls=self.calls,
            model=self.model,
            retry_s=self.patience,
        )

    def sampling(self) -> Sampling:
        """What is drawn, with --sampled."""
        return Sampling(self.samples, tokens=self.token_limit, temperature=self.temperature)

    def serving(self) -> Access:
        """The engine that is checked, with what a change of it requires."""
        return access(self.engine, api_key_env=self.api_key_env, token_file=self.token_file)


def refuse_nonsense(asked: CheckArguments) -> None:
    """UsageError for options that make no sense together."""
    if asked.history:
        _refuse_beside_history(asked)
    if asked.hard and asked.reference:
        raise UsageError("--hard and --reference are mutually exclusive", remedy="give one of them")
    if asked.case is not None and not asked.bundle:
        raise UsageError("--case requires --bundle", remedy="give --bundle FILE as well")
    lone = ("bundle", "every", "canary", "metrics_port", "metrics_file")
    if asked.sampled and (given := [name for name in lone if getattr(asked, name)]):
        word = given[0].replace("_", "-")
        raise UsageError(f"--sampled has no --{word}", remedy="use --json or --report")
    if asked.every is not None:
        parse_duration(asked.every)
    elif asked.metrics_port is not None:
        raise UsageError("--metrics-port requires --every", remedy="give --every as well")
    if asked.strict and not asked.is_canary:
        raise UsageError("--strict requires --canary", remedy="give --canary or --every as well")
    if asked.private and asked.bundle:
        raise UsageError(
            "--bundle and --private are mutually exclusive: a bundle holds a prompt",
            remedy="give one of them",
        )
    _refuse_places(asked)


def _refuse_beside_history(asked: CheckArguments) -> None:
    asking = (
        "bundle",
        "reports",
        "sampled",
        "every",
        "canary",
        "metrics_port",
        "metrics_file",
        "trip",
    )
    if given := [name for name in asking if getattr(asked, name)]:
        word = given[0].removesuffix("s").replace("_", "-")
        message = f"--history checks nothing, so it has no --{word}"
        raise UsageError(message, remedy="leave out one of them")


def _refuse_places(asked: CheckArguments) -> None:
    """UsageError for a file that could not be written, before anything is asked for it."""
    for path in asked.reports:
        report.report_form(path)
    for place in (*asked.reports, asked.bundle):
        if place is not None:
            report.refuse_place(place)
    if asked.metrics_file is not None:
        report.refuse_place(asked.metrics_file, replaced=True)
    written = (*asked.reports, asked.bundle, asked.metrics_file)
    report.refuse_overwriting(filter(None, written), asked.read_files)


def refuse_case(asked: CheckArguments, prompts: PromptSet) -> None:
    """UsageError for a --case that the prompts do not have."""
    if asked.case is not None and asked.case > prompts.count:
        remedy = f"there are {prompts.count}: give one of them, or --limit"
        raise UsageError(f"--case: there is no prompt {asked.case}", remedy=remedy)
