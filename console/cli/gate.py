"""`specdeck gate`: is this engine as good as the one that the baseline was measured of?"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from specdeck.console.cli.check import CODES, Ticker, log_waiting, open_arms, open_check_store
from specdeck.console.cli.check_arguments import COUNT, CheckArguments, Share
from specdeck.console.cli.common import Finite, Whole, until_signal, write_or_log
from specdeck.console.cli.earlier_report import withdraw_on_error
from specdeck.console.cli.engines import access, key_option
from specdeck.console.cli.file_options import OutputFile
from specdeck.console.cli.output import log, print_verdict
from specdeck.engine.client import event_loop
from specdeck.engine.divergence.baseline import Baseline, read_baseline, write_baseline
from specdeck.engine.divergence.gate_report import gate_junit, gate_lines, gate_markdown
from specdeck.engine.divergence.prompts import load_prompts_aside
from specdeck.engine.divergence.report import refuse_overwriting, refuse_place, save_file
from specdeck.engine.divergence.upgrade import Limits, compare_with_baseline
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.check import ArmPair, CheckedEngine
from specdeck.engine.operations.gate import (
    BlockDone,
    FactsMissing,
    Measurement,
    measure_engine,
    refuse_other_work,
    refuse_same_engine,
)
from specdeck.engine.special_functions import require_memory
from specdeck.engine.text import oneline

_PROMPTS, _TOKENS, _STREAMS = 200, 128, 8
"""What `check` asks: fewer that are all the same are no evidence of its default limit."""
_LOG_S = 10.0
"""Between two lines of progress."""
_FILE = OutputFile()


@click.command("gate")
@click.argument("places", nargs=-1, metavar="[BASELINE] [URL]")
@click.option(
    "--save",
    "target",
    type=_FILE,
    metavar="FILE",
    help="Measure the engine at URL and save it as a baseline.",
)
@click.option(
    "--against",
    metavar="URL",
    help="An engine to measure tokens/s in turn with, such "
    "as the one to be replaced; default: the baseline's own figures.",
)
@click.option(
    "--reference",
    metavar="URL",
    help="Another engine to compare outputs with; default: "
    "the same engine with each request pinned to k = 0.",
)
@click.option("--model", metavar="NAME", help="Where the engine serves several models.")
@click.option(
    "--prompts",
    "source",
    metavar="FILE",
    help="As for `check`; default: the baseline's, or code with --save.",
)
@click.option(
    "--limit",
    type=COUNT,
    metavar="N",
    help=f"Prompts; default: the baseline's, or {_PROMPTS} with --save.",
)
@click.option(
    "--max-tokens",
    type=COUNT,
    metavar="N",
    help=f"Of an answer; default: the baseline's, or {_TOKENS} with --save.",
)
@click.option(
    "--streams",
    type=Whole(1, 512),
    metavar="N",
    help=f"Requests at once; default: the baseline's, or {_STREAMS} with --save.",
)
@click.option(
    "--max-mismatch",
    type=Share(),
    default="1.5%",
    show_default=True,
    help="The highest acceptable rate of differing outputs.",
)
@click.option(
    "--max-slowdown",
    type=Share(),
    default="10%",
    show_default=True,
    help="The share of the baseline's tokens/s that may be lost.",
)
@click.option(
    "--max-acceptance-loss",
    type=Share(),
    default="5%",
    show_default=True,
    help="The share of the baseline's tokens per round that may be lost.",
)
@click.option(
    "--patience",
    type=Finite(min=0),
    default=120.0,
    metavar="S",
    show_default=True,
    help="Seconds to wait for an engine that is away.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Also a JUnit report.")
@click.option("--page", type=_FILE, metavar="FILE", help="Also one Markdown page.")
@key_option
@click.option("--against-api-key-env", metavar="NAME", help="The same for --against.")
@click.option("--reference-api-key-env", metavar="NAME", help="The same for --reference.")
def command(places: tuple[str, ...], target: Path | None, **options: Any) -> int:
    """Compare an engine with a saved baseline: outputs, acceptance, tokens/s, fingerprint.

    `specdeck gate --save FILE URL` saves one. Neither engine may have other traffic meanwhile:
    what is served to others makes it inconclusive. Exit code 0 is as good as the baseline, 1 worse
    or too little to tell.
    """
    if not places:
        raise UsageError(
            "no engine to save a baseline of is named"
            if target is not None
            else "no baseline to compare with is named",
            remedy="`specdeck gate --save FILE URL` saves one, `specdeck gate FILE URL` compares",
        )
    for place in (target, options["junit"], options["page"]):
        if place is not None:
            refuse_place(place, replaced=place is target)
    if target is not None:
        return _save(places, target, options)
    if len(places) > 2:
        raise UsageError("a gate has one baseline and one engine", remedy="see `specdeck gate -h`")
    with withdraw_on_error(filter(None, (options["junit"], options["page"]))) as end:
        return end(_gate(places, options))


def _gate(places: tuple[str, ...], options: dict[str, Any]) -> int:
    """Compares with the baseline in the first of `places`."""
    baseline = read_baseline(Path(places[0]))
    if not places[1:] and options["api_key_env"]:
        raise UsageError(
            "an API key is not sent to where a file says",
            remedy=f"name the engine as well, such as {oneline(baseline.engine)[:200]}",
        )
    engine = places[1] if places[1:] else baseline.engine
    work = baseline.workload
    asked = _arguments(engine, options, work.source, work.prompts, work.max_tokens, work.streams)
    asked = replace(asked, ignore_eos=work.ignore_eos)
    written = filter(None, (options["junit"], options["page"]))
    refuse_overwriting(written, (Path(places[0]), *asked.read_files))
    return event_loop.run(until_signal(_compare(asked, options, baseline)))


def _save(places: tuple[str, ...], target: Path, options: dict[str, Any]) -> int:
    if len(places) != 1:
        raise UsageError("--save takes one engine", remedy="give its URL alone")
    unfit = [name for name in ("against", "junit", "page") if options[name]]
    if unfit:
        raise UsageError(f"--save compares nothing, so it has no --{unfit[0]}")
    asked = _arguments(places[0], options, "code", _PROMPTS, _TOKENS, _STREAMS)
    refuse_overwriting((target,), asked.read_files)
    return event_loop.run(until_signal(_measure_and_save(asked, options, target)))


def _arguments(
    engine: str, options: dict[str, Any], source: str, limit: int, tokens: int, streams: int
) -> CheckArguments:
    return CheckArguments(
        engine,
        reference=options["reference"],
        model=options["model"],
        source=options["source"] or source,
        limit=options["limit"] or limit,
        max_tokens=options["max_tokens"] or tokens,
        streams=options["streams"] or streams,
        max_mismatch=options["max_mismatch"],
        fresh=True,
        patience=options["patience"],
        as_json=options["as_json"],
        api_key_env=options["api_key_env"],
        reference_api_key_env=options["reference_api_key_env"],
    )


async def _measure_and_save(asked: CheckArguments, options: dict[str, Any], target: Path) -> int:
    measured = await _measure(asked, options, None)
    found, doubts = measured.baseline, [one.line for one in measured.doubts]
    verdict, reason = found.check.verdict, found.check.reason
    if doubts:
        reason = "; ".join(doubts if verdict == "pass" else (reason, *doubts))
        verdict = "inconclusive" if verdict == "pass" else verdict
    write_baseline(found, target)
    log(f"specdeck: the baseline is in {target}: `specdeck gate {target} URL` compares with it")
    said = {
        "saved": str(target),
        "engine": found.engine,
        "verdict": verdict,
        "reason": reason,
    }
    lines = [f"{name.ljust(8)} {value}" for name, value in said.items()]
    print_verdict(said, lambda: lines, as_json=asked.as_json)
    return CODES[verdict]


async def _compare(asked: CheckArguments, options: dict[str, Any], baseline: Baseline) -> int:
    measured = await _measure(asked, options, baseline)
    against = access(options["against"]).url if options["against"] else None
    limits = Limits(options["max_slowdown"], options["max_acceptance_loss"])
    gate = compare_with_baseline(
        baseline,
        measured.baseline,
        limits,
        against=against,
        paired=measured.paired,
        doubts=measured.doubts,
    )
    data = gate.as_json()
    print_verdict(data, lambda: gate_lines(data), as_json=asked.as_json)
    unwritten = 0
    for path, form in ((options["junit"], gate_junit), (options["page"], gate_markdown)):
        if path is not None:
            unwritten = max(unwritten, write_or_log(partial(save_file, path, form(data))))
    return CODES[gate.word] or unwritten


async def _measure(
    asked: CheckArguments, options: dict[str, Any], baseline: Baseline | None
) -> Measurement:
    require_memory()
    prompts = await load_prompts_aside(asked.source, asked.prompt_limit)
    measured: Measurement | None = None
    last = time.monotonic()
    async with open_arms(asked) as pair, _open_second(asked, options) as second:
        if baseline is not None:
            refuse_other_work(baseline, prompts, pair)
        if second is not None:
            await refuse_same_engine(pair, second)
        with open_check_store() as (checks, _), closing(Ticker()) as ticker:
            events = measure_engine(pair, prompts, checks, second=second)
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Measurement):
                        measured = event
                    elif isinstance(event, FactsMissing):
                        log(f"specdeck: the engine's facts were not read: {event.reason}")
                    elif not isinstance(event, BlockDone):
                        ticker.show(event)
                    elif time.monotonic() - last >= _LOG_S or event.done == event.of:
                        last = time.monotonic()
                        log(f"gate: measured {event.done} of {event.of} blocks")
    assert measured is not None  # it ends so, or raises
    return measured


@asynccontextmanager
async def _open_second(
    asked: CheckArguments, options: dict[str, Any]
) -> AsyncIterator[ArmPair | None]:
    """The engine to take turns with, ready to be asked; None where none is given."""
    if not options["against"]:
        yield None
        return
    other = access(options["against"], api_key_env=options["against_api_key_env"])
    if other.url == access(asked.engine).url:
        raise UsageError("--against is the engine itself", remedy="give the one to be replaced")
    client = other.client()
    try:
        # Both arms are the engine as it serves: nothing of it need be pinned.
        engine = CheckedEngine(client, other.api_key)
        async with ArmPair(engine, engine, asked.options(), on_notice=log_waiting) as pair:
            yield pair
    finally:
        await client.close()
