"""`specdeck why`: what makes an engine accept less or work slower, and what does not."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import click

from specdeck.console.cli.common import black_box_folder, until_signal
from specdeck.console.cli.engines import Access, access, key_option, require_vllm
from specdeck.console.cli.file_options import NamedFile, OutputFile
from specdeck.console.cli.output import draw_over, log, print_verdict
from specdeck.console.cli.span import read_span
from specdeck.engine.blackbox.folder import open_history
from specdeck.engine.client import event_loop
from specdeck.engine.client.command_options import CommandOptions, list_options
from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.incident.material import Span
from specdeck.engine.special_functions import require_memory
from specdeck.engine.text import parse_duration
from specdeck.engine.why.baseline_file import load_baseline, save_baseline
from specdeck.engine.why.evidence import Baseline, Evidence
from specdeck.engine.why.gather import LOOK_S, Progress, gather, with_baseline
from specdeck.engine.why.past import compare_with_past, recall
from specdeck.engine.why.ranking import Diagnosis, diagnose
from specdeck.engine.why.words import (
    describe_baseline,
    describe_cause,
    describe_look,
    describe_ruled_out,
    describe_together,
    list_commands,
    list_untold,
)

_WIDTH = 80
_LONGEST_S = 86_400.0


@click.command("why")
@click.argument("engine", metavar="URL")
@click.option(
    "--for",
    "look",
    metavar="T",
    help=f"How long to watch, such as 60s or 5m; default: {LOOK_S:.0f}s.",
)
@click.option(
    "--against",
    type=NamedFile(),
    metavar="F",
    help="Compare with a baseline that --save wrote.",
)
@click.option(
    "--save",
    type=OutputFile(),
    metavar="F",
    help="Save what is seen as a baseline, for --against.",
)
@click.option("--last", metavar="T", help="Judge the recorded past, such as the last 30m.")
@click.option(
    "--since", metavar="T", help="Judge the recorded past since then, such as 03:10 or -20m."
)
@click.option("--until", metavar="T", help="With --since or --last: until when; default: now.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; progress on stderr.")
@key_option
def command(
    engine: str,
    look: str | None,
    against: Path | None,
    save: Path | None,
    last: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
    api_key_env: str | None,
) -> int:
    """Rank the causes of low or falling acceptance and speed, with an interval each.

    Watches an engine for a while and compares its requests with each other and with a baseline:
    the time before its figures fell, or an hour ago, where that was recorded; else its life before.
    With --last or --since (and --until) it judges what was recorded, and the engine may be gone.
    Says what it ruled out, and what it cannot tell and why.
    Exits with 1 when it found a cause, and with 0 when it found none.
    """
    require_memory()  # rather than after half a minute
    if last is not None or since is not None:
        if look is not None:
            raise UsageError("--for watches a live engine", remedy="leave it out")
        span = read_span(last, since, until, time.time())
        baseline = None if against is None else load_baseline(against)
        return explain_past(engine, span, baseline, save, as_json=as_json)
    if until is not None:
        raise UsageError("--until ends a recorded past", remedy="give --since or --last as well")
    wanted = Wanted(read_look(look), None if against is None else load_baseline(against), save)
    to = access(engine, api_key_env=api_key_env)
    return event_loop.run(until_signal(explain(to, wanted, as_json=as_json)))


def explain_past(
    engine: str, span: Span, baseline: Baseline | None, save: Path | None, *, as_json: bool
) -> int:
    """Judges what was recorded of an engine; the exit code."""
    with closing(open_history(black_box_folder(), *recorded_names(engine))) as history:
        evidence = recall(history, span.start, span.end)
    if baseline is not None:
        evidence = with_baseline(evidence, baseline)
    return report(evidence, save, find_options(engine), as_json=as_json)


def find_options(engine: str) -> CommandOptions:
    """What commands have to be given for an engine; that of a stranger where there is none."""
    try:
        return access(engine).options
    except UsageError:
        return list_options(None, None, has_token=False)


def recorded_names(engine: str) -> tuple[str, str | None]:
    """What the black box of an engine goes by: its URL and its name; what was typed where there is
    no engine."""
    try:
        to = access(engine)
    except UsageError:
        return engine, None
    return to.url, to.name


async def recall_past(evidence: Evidence, url: str) -> Evidence:
    """The same against what was recorded of the time before; unchanged where nobody recorded it.

    Reads in a thread, for as long as a large record takes. Cancelled, it closes the record, and
    the thread ends with that.
    """
    with suppress(SpecdeckError):
        history = await asyncio.to_thread(open_history, black_box_folder(), url)
        with closing(history):
            return await asyncio.to_thread(compare_with_past, evidence, history)
    return evidence


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    seconds: float
    baseline: Baseline | None = None
    save: Path | None = None


def read_look(text: str | None) -> float:
    """Seconds to watch; raises UsageError for what is no duration.

    >>> read_look(None), read_look("5m"), read_look("0s")
    (30.0, 300.0, 0.0)
    """
    if text is None:
        return LOOK_S
    if text in ("0", "0s"):
        return 0.0
    try:
        seconds = parse_duration(text)
    except UsageError:
        raise UsageError(f"--for {text} is no time", remedy="give one such as 60s") from None
    if seconds > _LONGEST_S:
        raise UsageError(f"--for {text} is more than a day", remedy="give one such as 60s")
    return seconds


async def explain(to: Access, wanted: Wanted, *, as_json: bool) -> int:
    """Watches the engine and prints why; the exit code."""
    client = to.client()
    evidence: Evidence | None = None
    drawn = False
    try:
        async with (
            require_vllm(client),
            aclosing(gather(client, seconds=wanted.seconds, baseline=wanted.baseline)) as found,
        ):
            async for event in found:
                if isinstance(event, Evidence):
                    evidence = event
                elif sys.stderr.isatty():
                    draw_over(describe_progress(event))
                    drawn = True
    finally:
        if drawn:
            log("specdeck: watched", over=True)
        await client.close()
    assert evidence is not None  # gather ends with it, or with an error
    if evidence.baseline is None or evidence.baseline.source == "life":
        evidence = await recall_past(evidence, to.url)
    return await asyncio.to_thread(report, evidence, wanted.save, to.options, as_json=as_json)


def report(evidence: Evidence, save: Path | None, options: CommandOptions, *, as_json: bool) -> int:
    """Judges what was seen and prints it; the exit code."""
    if save is not None:
        save_baseline(save, evidence)
        log(f"specdeck: saved {evidence.span.total.requests} requests in {save}")
    diagnosis = replace(diagnose(evidence), options=options)
    print_verdict(diagnosis.as_json(), lambda: diagnosis_lines(diagnosis), as_json=as_json)
    return 1 if diagnosis.causes else 0


def describe_progress(progress: Progress) -> str:
    """How far a look is.

    >>> describe_progress(Progress(12.3, 30.0, 84))
    'specdeck: watching 12 of 30 s, 84 requests finished'
    """
    seconds = f"{progress.seconds:.0f} of {progress.of:.0f} s"
    return f"specdeck: watching {seconds}, {progress.requests} requests finished"


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """The answer for a person, in lines of 80 columns; a command is never broken."""
    lines = _wrap(describe_look(diagnosis.looked), "")
    if (baseline := describe_baseline(diagnosis)) is not None:
        lines += _wrap(baseline, "")
    commands = list_commands(diagnosis)
    for number, (cause, command) in enumerate(
        zip(diagnosis.causes, commands, strict=True), start=1
    ):
        title, *rest = describe_cause(cause)
        lines += ["", *_wrap(f"{number}. {title}", "   ")]
        for line in rest:
            lines += _wrap(f"   {line}", "   ")
        if command is not None:
            lines.append(f"   $ {command}")
    if (together := describe_together(diagnosis.causes)) is not None:
        lines += ["", *_wrap(together, "")]
    if not diagnosis.causes:
        lines += ["", "no cause found"]
    if diagnosis.ruled_out:
        lines += ["", "ruled out"]
        for out in diagnosis.ruled_out:
            lines += _wrap(f"   {describe_ruled_out(out)}", "     ")
    if diagnosis.untold:
        lines += ["", "cannot be told"]
        for untold in list_untold(diagnosis.untold):
            lines += _wrap(f"   {untold}", "     ")
    for what, reason in diagnosis.missing:
        lines += _wrap(f"   {what}: {reason}", "     ")
    return lines


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent) or [""]
