"""What `specdeck check` does once its words are understood: one check, or one every so often."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.cli.check_files import refuse_places, tried, written
from specdeck.console.cli.check_stopped import Standing
from specdeck.console.cli.check_trip import open_breaker, require_token
from specdeck.console.cli.check_waits import waits
from specdeck.console.cli.engines import Access, access
from specdeck.console.cli.output import emit, log
from specdeck.console.cli.ticker import Ticker
from specdeck.engine.divergence import history, report
from specdeck.engine.divergence.lab import Engine, Lab, Plan, run
from specdeck.engine.divergence.report import CheckGauges
from specdeck.engine.divergence.requests import Settings
from specdeck.engine.errors import ConfigError, EngineError, SpecdeckError, UsageError
from specdeck.engine.paths import locations
from specdeck.engine.store.checks import Checks
from specdeck.engine.text import parse_duration

if TYPE_CHECKING:
    from specdeck.engine.divergence.prompts import PromptSet
    from specdeck.engine.store.database import Store

Options = dict[str, Any]
CODES = {"pass": 0, "fail": 1, "inconclusive": 1}
"""A gate must not open for what was not shown, so inconclusive is no pass."""
_TOLD_S = 10.0
"""Between two lines of progress on stderr."""


async def once(options: Options, prompts: PromptSet) -> int:
    """One check; its exit code."""
    gauges = _gauges(options)
    await _require_token(options)
    data = await _compared(options, prompts)
    unwritten = _told(options, data, prompts, gauges)
    return CODES[data["verdict"]] or unwritten


async def repeated(options: Options, prompts: PromptSet) -> int:
    """A check every so often, until a signal comes; one that cannot be done does not end it.

    Each reads the prompts anew: the file may be another one by then.
    """
    every, gauges = parse_duration(options["every"]), _gauges(options)
    await _require_token(options)
    while True:
        began = time.monotonic()
        try:
            # Each check stands for its day; only what was cut short within it goes on.
            data = await _compared(options, prompts)
        except (EngineError, ConfigError) as error:
            log(f"specdeck: {error.line()}")
            if gauges is not None:
                gauges.failed()
                tried(partial(_write, options, gauges))
        else:
            _told(options, data, prompts, gauges)
        await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))
        prompts = read_again(options, prompts)


def read_again(options: Options, known: PromptSet) -> PromptSet:
    """The prompts as they are by now; those that are known where they cannot be read."""
    from specdeck.engine.divergence.prompts import load_prompts

    try:
        return load_prompts(options["source"], options["limit"])
    except ConfigError:
        return known  # the check that reads it says what is wrong


async def sampled(options: Options, prompts: PromptSet) -> int:
    """Distributions at temperature > 0; the exit code."""
    from specdeck.engine.divergence import report
    from specdeck.engine.divergence.history import record_sampled
    from specdeck.engine.divergence.sampled import Sampling, compare_distributions

    sampling = Sampling(
        options["samples"], tokens=options["max_tokens"], temperature=options["temperature"]
    )
    await _require_token(options)
    with _told_when_stopped(Standing(prompts.count, kept=False)) as standing:
        async with opened(options) as lab:
            with _store() as (store, _):
                said = _drawing(prompts, standing)
                found = await compare_distributions(lab, prompts, sampling, said=said)
                data = found.as_json()
                past = record_sampled(lab, data, prompts, Checks(store), time.time())
    data = {**data, "history": past.as_json(), "tripped": await _trip(options, data)}
    try:
        _shown(options, data, report.sampled_text)
    finally:
        settings = plan(options).settings
        unwritten = written(options, data, prompts, settings, form=report.write_sampled_report)
    return CODES[data["verdict"]] or unwritten


@contextmanager
def _told_when_stopped(standing: Standing) -> Iterator[Standing]:
    """Says how far a check came that a signal ends."""
    try:
        yield standing
    except asyncio.CancelledError:
        log(f"specdeck: {standing.line()}")
        raise


def _drawing(prompts: PromptSet, standing: Standing) -> Callable[[int], None]:
    """Tells on stderr, now and then, how many prompts are drawn from."""
    last = time.monotonic()

    def said(done: int) -> None:
        nonlocal last
        standing.done = done
        if done and time.monotonic() - last >= _TOLD_S:
            last = time.monotonic()
            log(f"check: drawn from {done} of {prompts.count} prompts")

    return said


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[Lab]:
    """Both arms, ready to be asked."""
    async with AsyncExitStack() as stack:

        def engine(one: Access) -> Engine:
            client = one.client()
            stack.push_async_callback(client.close)
            return Engine(client, one.api_key)

        ours = access(options["engine"], api_key_env=options["api_key_env"])
        theirs = await _reference(options, ours, stack)
        other = None if theirs is None else engine(theirs)
        lab = Lab(engine(ours), other, plan(options), on_notice=waits)
        yield await stack.enter_async_context(lab)


def plan(options: Options) -> Plan:
    """What the options ask for."""
    return Plan(
        settings=Settings(max_tokens=options["max_tokens"], ignore_eos=options["ignore_eos"]),
        threshold=options["max_mismatch"],
        streams=options["streams"],
        gentle=options["gentle"],
        private=options["private"],
        fresh=options["fresh"],
        calls=options["calls"],
        model=options["model"],
        patience_s=options["patience"],
    )


async def _compared(options: Options, prompts: PromptSet) -> dict[str, Any]:
    """Runs a check with its progress on stderr; its JSON, with how it stands to earlier ones."""
    with _told_when_stopped(Standing(prompts.count, fresh=options["fresh"])) as standing:
        async with opened(options) as lab:
            with _store() as (store, stored), Ticker("check", log) as ticker:
                checks = Checks(store)
                standing.opened(lab, stored=stored, anew=options["hard"])
                outcome = await run(lab, prompts, checks, standing.also(ticker))
                standing.finished = True
                runs = checks.history(lab.arms[0].url)
    past = {"history": history.compare_with_history(runs).as_json(),
            "earlier": [line.as_json() for line in history.comparable_checks(runs)]}  # fmt: skip
    data = {**outcome.as_json(), **past}
    return {**data, "tripped": await _trip(options, data)}


async def _require_token(options: Options) -> None:
    if options["trip"]:
        await require_token(_serving(options))


async def _trip(options: Options, data: dict[str, Any]) -> dict[str, Any] | None:
    """What became of the breaker; None where it was not asked for, or there was no need."""
    if not options["trip"] or data["verdict"] != "fail":
        return None
    trip = await open_breaker(_serving(options), data["reason"], retry_s=options["patience"])
    return trip.as_json()


def _serving(options: Options) -> Access:
    return access(
        options["engine"], api_key_env=options["api_key_env"], token_file=options["token_file"]
    )


def _told(
    options: Options, data: dict[str, Any], prompts: PromptSet, gauges: CheckGauges | None
) -> int:
    """Prints a check, then writes it down wherever that was asked for.

    0, or the code of what could not be written: that costs neither the figures nor other
    files, and a reader who has gone costs no file.
    """
    try:
        _shown(options, data, report.check_text)
    finally:
        shown = 0
        if gauges is not None:
            gauges.show(data, time.time())
            shown = tried(partial(_write, options, gauges))
        unwritten = written(options, data, prompts, plan(options).settings)
    return shown or unwritten


def _shown(options: Options, data: dict[str, Any], text: Callable[[dict[str, Any]], str]) -> None:
    if options["as_json"]:
        emit(data)
    else:
        click.echo(text(data))


def _gauges(options: Options) -> CheckGauges | None:
    if options["metrics_port"] is None and options["metrics_file"] is None:
        return None
    gauges = CheckGauges(access(options["engine"]).url)
    if options["metrics_port"] is not None:
        gauges.serve(options["metrics_port"], options["metrics_address"])
    return gauges


def _write(options: Options, gauges: CheckGauges) -> None:
    if options["metrics_file"] is not None:
        gauges.write(options["metrics_file"])


async def _reference(options: Options, ours: Access, stack: AsyncExitStack) -> Access | None:
    """The engine to compare with; None for the same one, pinned."""
    if options["reference"]:
        return access(options["reference"], api_key_env=options["reference_api_key_env"])
    if options["hard"]:
        from specdeck.console.cli.run import start_reference_engine

        return await stack.enter_async_context(start_reference_engine(ours))
    return None


def refuse_case(options: Options, prompts: PromptSet) -> None:
    """UsageError for a --case that the prompts do not have."""
    case = options["case"]
    if case is not None and case > prompts.count:
        remedy = f"there are {prompts.count}: give one of them, or --limit"
        raise UsageError(f"--case: there is no prompt {case}", remedy=remedy)


def refuse_nonsense(options: Options) -> None:
    """UsageError for options that make no sense together."""
    if options["history"]:
        _refuse_beside_history(options)
    if options["hard"] and options["reference"]:
        raise UsageError("--hard and --reference are two references", remedy="give one of them")
    if options["case"] is not None and not options["bundle"]:
        raise UsageError("--case is of a --bundle", remedy="give --bundle FILE as well")
    lone = ("bundle", "every", "metrics_port", "metrics_file")
    if options["sampled"] and (given := [name for name in lone if options[name]]):
        word = given[0].replace("_", "-")
        raise UsageError(f"--sampled has no --{word}", remedy="use --json or --report")
    if options["every"] is not None:
        parse_duration(options["every"])
    elif options["metrics_port"] is not None:
        raise UsageError("--metrics-port answers while --every runs", remedy="give --every as well")
    if options["private"] and options["bundle"]:
        raise UsageError("--bundle holds a prompt, --private keeps none", remedy="give one of them")
    refuse_places(options)


def _refuse_beside_history(options: Options) -> None:
    asking = ("bundle", "reports", "sampled", "every", "metrics_port", "metrics_file", "trip")
    if given := [name for name in asking if options[name]]:
        word = given[0].removesuffix("s").replace("_", "-")
        raise UsageError(
            f"--history checks nothing, so it has no --{word}", remedy="leave out one of them"
        )


@contextmanager
def _store() -> Iterator[tuple[Store, bool]]:
    """The user's store or, where it cannot be used, one that ends with the command, and which."""
    from specdeck.engine.store.database import Store

    with tempfile.TemporaryDirectory(prefix="specdeck-check-") as spare:
        try:
            store, lasts = Store(locations(os.environ).store), True
        except SpecdeckError as error:
            log(f"specdeck: this check will be forgotten: {error.line()}")
            store, lasts = Store(Path(spare) / "store.sqlite"), False
        with store:
            yield store, lasts
