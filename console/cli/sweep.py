"""`specdeck sweep`: which k is the fastest on the traffic of this moment?"""

from __future__ import annotations

import shutil
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path

import click

from specdeck.console.cli.audit import UserAudit
from specdeck.console.cli.calibrate import SweepOnly, calibrate
from specdeck.console.cli.common import Finite, Whole, until_signal
from specdeck.console.cli.engines import Access, access, key_option, token_option
from specdeck.console.cli.hard_sweep import STEADY, STREAMS, OwnLoad, sweep_hard
from specdeck.console.cli.measurement import print_at_end
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.console.cli.sweep_report import (
    WIDEST,
    SweepScreen,
    curve_lines,
    has_to_tell,
    print_outcome,
    verdict_lines,
)
from specdeck.engine.client import event_loop
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.calibration import CALIBRATION_S, CalibrationRequest
from specdeck.engine.operations.sweep import SWEEP_S, Sweep, SweepRequest
from specdeck.engine.sweep.analysis import SweepOutcome
from specdeck.engine.sweep.plan import Plan
from specdeck.engine.text import format_duration


@click.command("sweep")
@click.argument("engine", metavar="URL")
@click.option(
    "--k", "ks", metavar="0-5", help="The values of k, such as 0-5 or 0,2,4; default: all of them."
)
@click.option(
    "--seconds",
    type=Finite(min=1.0, max=86_400.0),
    metavar="S",
    help="How long the whole sweep takes, with traffic all the time; an engine that is slow to "
    "answer gets fewer rounds, three at least. "
    f"Default: {SWEEP_S:g}, with --calibrate {CALIBRATION_S:g}.",
)
@click.option(
    "--rounds",
    type=Whole(2, 100),
    metavar="N",
    help="Visits of each k, or rounds of --calibrate, however long they take; default: as many as "
    "the time allows.",
)
@click.option(
    "--hard",
    is_flag=True,
    help="Also visit an engine without speculation, started for it from the same config, under a "
    "load of its own: what does soft k = 0 cost more?",
)
@click.option(
    "--reference",
    metavar="URL",
    help="As --hard, with an engine without speculation that runs already.",
)
@click.option(
    "--reference-api-key-env",
    "reference_key",
    metavar="NAME",
    help="The variable that holds the API key of --reference.",
)
@click.option(
    "--load",
    "profile",
    type=click.Choice(STEADY),
    help=f"With --hard or --reference: what is asked for; default: {STEADY[0]}.",
)
@click.option(
    "--streams",
    type=Whole(1, 512),
    metavar="N",
    help=f"With --hard or --reference: requests at once; default: {STREAMS}.",
)
@click.option(
    "--calibrate",
    "calibrates",
    is_flag=True,
    help="Time dummy steps instead, on an engine without requests: what a step of each batch size "
    "and k costs is known before the first request.",
)
@click.option("--reason", metavar="T", help="Kept in the audit log.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; progress on stderr.")
@key_option
@token_option
def command(
    engine: str,
    ks: str | None,
    seconds: float | None,
    rounds: int | None,
    hard: bool,
    reference: str | None,
    reference_key: str | None,
    profile: str | None,
    streams: int | None,
    calibrates: bool,
    reason: str | None,
    as_json: bool,
    api_key_env: str | None,
    token_file: Path | None,
) -> int:
    """Visit k after k on live traffic, and tell which is the fastest, and how sure that is.

    Rounds are interleaved in random order, so that a drift of the load hits every k alike.
    The engine is left as it was found, also on Ctrl-C; if the sweep is killed, the engine
    takes k back by itself within 10 s. Without traffic, and when somebody else turns a knob
    meanwhile, the sweep stops and exits with 3. One that could not give k back, or cannot tell,
    exits with 1, also on Ctrl-C, and says what the engine has and which command puts it back.

    With --calibrate it is the other way round: the engine must have no requests, its policy's cost
    model learns from dummy steps, and the first request that comes ends it (exit 3).
    """
    if calibrates:
        SweepOnly(hard, reference, profile, streams).refuse()
        asked = CalibrationRequest(
            find_operator(),
            None if ks is None else numbers(ks, least=1),
            CALIBRATION_S if seconds is None else seconds,
            rounds,
            "sweep --calibrate" if reason is None else f"sweep --calibrate: {reason}",
        )
        to = access(engine, api_key_env=api_key_env, token_file=token_file)
        return event_loop.run(until_signal(calibrate(to, asked, as_json=as_json)))
    beside = hard or reference is not None
    refuse_options(hard=hard, reference=reference, profile=profile, streams=streams)
    wanted = SweepRequest(
        find_operator(),
        None if ks is None else numbers(ks, least=1 if beside else 2),
        SWEEP_S if seconds is None else seconds,
        rounds,
        "sweep" if reason is None else f"sweep: {reason}",
    )
    to = access(engine, api_key_env=api_key_env, token_file=token_file)
    if not beside:
        return event_loop.run(until_signal(sweep(to, wanted, as_json=as_json)))
    own = OwnLoad(profile or STEADY[0], streams or STREAMS)
    other = None if reference is None else access(reference, api_key_env=reference_key)
    return event_loop.run(until_signal(sweep_hard(to, other, wanted, own, as_json=as_json)))


def refuse_options(
    *, hard: bool, reference: str | None, profile: str | None, streams: int | None
) -> None:
    """Raises UsageError where the options for an engine without speculation do not go together."""
    if hard and reference is not None:
        raise UsageError("--hard and --reference are mutually exclusive")
    if not hard and reference is None and (profile is not None or streams is not None):
        raise UsageError(
            "--load and --streams are of --hard and --reference",
            remedy="a sweep measures the traffic that is there",
        )


def numbers(text: str, *, least: int = 2) -> tuple[int, ...]:
    """The k's that `--k` names, `least` of them or more; raises UsageError on nonsense.

    >>> numbers("0-3"), numbers("0,2,4-5")
    ((0, 1, 2, 3), (0, 2, 4, 5))
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (end.strip() for end in part.partition("-"))
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdecimal() and len(end) < 5 for end in ends):
            raise UsageError(f"--k {text} names no k's", remedy="give them as 0-5 or 0,2,4")
        low, high = int(ends[0]), int(ends[1])
        if low > high:
            raise UsageError(f"--k {part.strip()} runs backwards", remedy=f"give {high}-{low}")
        found.update(range(low, high + 1))
    if len(found) < least:
        raise UsageError("one k is nothing to compare", remedy="give two or more, such as 0-5")
    return tuple(sorted(found))


async def sweep(to: Access, wanted: SweepRequest, *, as_json: bool) -> int:
    """Runs the sweep and prints what came of it, whole or not; the exit code."""
    client = to.client()
    work = Sweep(client, wanted, url=to.url, name=to.name, record=UserAudit().add)
    async with print_at_end(client, work, partial(_print, as_json=as_json)):
        with closing(SweepScreen(lambda: work.outcome)) as screen:
            async with aclosing(work.events()) as events:
                async for event in events:
                    if isinstance(event, Plan):
                        log(_announcement(event, wanted))
                    screen.show(event)
    return 0


def _announcement(plan: Plan, wanted: SweepRequest) -> str:
    seconds = plan.seconds
    visits = plan.visits if plan.limit_s is None else f"up to {plan.visits}"
    planning = f"{visits} visits, about {format_duration(seconds)} with traffic all the time"
    text = f"specdeck: {planning}; Ctrl-C restores k"
    if seconds > wanted.seconds * 1.05:
        text += f" ({wanted.seconds:g} s are too few to tell anything)"
    return text


def _print(outcome: SweepOutcome, *, as_json: bool) -> None:
    """Prints what it came to; raises LeftTurned where the engine may be left turned."""
    print_outcome(outcome, partial(_print_result, outcome, as_json=as_json))


def _print_result(outcome: SweepOutcome, *, as_json: bool) -> None:
    if not has_to_tell(outcome, as_json=as_json):
        return
    if as_json:
        emit(outcome.as_json())
        return
    width = min(WIDEST, shutil.get_terminal_size().columns)
    print_lines(*curve_lines(outcome, width), "", *verdict_lines(outcome))
    for notice in outcome.notices:
        log(f"specdeck: {notice}")
