"""`specdeck sweep`: which k is the fastest on the traffic of this moment?"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import click

from specdeck.console.cli.audit import UserAudit
from specdeck.console.cli.common import Finite, until_signal
from specdeck.console.cli.engines import Access, access, key_option, require_vllm, token_option
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import draw_lines, emit, log, print_lines
from specdeck.console.widgets.blocks import whisker
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.sweep import SWEEP_S, Sweep, SweepEvent, SweepRequest
from specdeck.engine.protocol.tuning import Interval
from specdeck.engine.sweep.analysis import Optimum, SweepOutcome, schedule_line
from specdeck.engine.sweep.plan import Plan
from specdeck.engine.sweep.runner import SweepProgress, VisitDone, Visiting, WaitingForTraffic
from specdeck.engine.text import format_duration

_FIGURES = 42
"""Columns of a line before its bar."""
_LEAST_BAR = 8
_WIDEST = 100
_MOST_PERCENT = 1000
"""Digits of an upper end beyond this one would promise knowledge."""


@click.command("sweep")
@click.argument("engine", metavar="URL")
@click.option(
    "--k", "ks", metavar="0-5", help="The values of k, such as 0-5 or 0,2,4; default: all of them."
)
@click.option(
    "--seconds",
    type=Finite(min=1.0, max=86_400.0),
    default=SWEEP_S,
    metavar="S",
    show_default=True,
    help="How long the whole sweep takes, with traffic all the time.",
)
@click.option(
    "--rounds",
    type=click.IntRange(2, 100),
    metavar="N",
    help="Visits of each k; default: 3 to 12, as many as the time allows.",
)
@click.option("--reason", metavar="T", help="Kept in the audit log.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; progress on stderr.")
@key_option
@token_option
def command(
    engine: str,
    ks: str | None,
    seconds: float,
    rounds: int | None,
    reason: str | None,
    as_json: bool,
    api_key_env: str | None,
    token_file: Path | None,
) -> int:
    """Visit k after k on live traffic, and tell which is the fastest, and how sure that is.

    Rounds are interleaved in random order, so that a drift of the load hits every k alike.
    The engine is left as it was found, also on Ctrl-C; if the sweep is killed, the engine
    takes k back by itself within 10 s. Without traffic, and when somebody else turns a knob
    meanwhile, the sweep stops and exits with 3.
    """
    wanted = SweepRequest(
        find_operator(),
        None if ks is None else numbers(ks),
        seconds,
        rounds,
        "sweep" if reason is None else f"sweep: {reason}",
    )
    to = access(engine, api_key_env=api_key_env, token_file=token_file)
    return asyncio.run(until_signal(sweep(to, wanted, as_json=as_json)))


def numbers(text: str) -> tuple[int, ...]:
    """The k's that `--k` names; raises UsageError on nonsense.

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
    if len(found) < 2:
        raise UsageError("one k is nothing to compare", remedy="give two or more, such as 0-5")
    return tuple(sorted(found))


async def sweep(to: Access, wanted: SweepRequest, *, as_json: bool) -> int:
    """Runs the sweep and prints what came of it, whole or not; the exit code."""
    client = to.client()
    work = Sweep(client, wanted, url=to.url, name=to.name, record=UserAudit().add)
    screen = Screen(lambda: work.outcome)
    try:
        async with require_vllm(client), aclosing(work.events()) as events:
            async for event in events:
                if isinstance(event, Plan):
                    log(_announcement(event, wanted))
                screen.show(event)
    finally:
        screen.close()
        outcome = work.outcome
        if outcome is not None:
            _print(outcome, as_json=as_json)
        await client.close()
    if outcome is not None and outcome.error is not None:
        raise outcome.error
    return 0


def _announcement(plan: Plan, wanted: SweepRequest) -> str:
    seconds = plan.seconds
    planning = f"{plan.visits} visits, about {format_duration(seconds)}"
    text = f"specdeck: {planning}; Ctrl-C restores k"
    if seconds > wanted.seconds * 1.05:
        text += f" ({wanted.seconds:g} s are too few to tell anything)"
    return text


def _print(outcome: SweepOutcome, *, as_json: bool) -> None:
    # A script that interrupts a sweep is told what it came to, also when that is nothing yet.
    if not outcome.visits and not (as_json and outcome.interrupted):
        return
    if as_json:
        emit(outcome.as_json())
        return
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    print_lines(*curve_lines(outcome, width), "", *verdict_lines(outcome))
    for notice in outcome.notices:
        log(f"specdeck: {notice}")


class Screen:
    """A sweep's progress on stderr: the curve drawn over and over, or a line each round."""

    def __init__(
        self,
        outcome: Callable[[], SweepOutcome | None],
        *,
        terminal: bool | None = None,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        """`outcome` gives what the sweep has come to by now."""
        self._outcome = outcome
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._columns = columns
        self._drawn = 0
        self._waiting = False

    def show(self, event: SweepEvent) -> None:
        """Tells of an event."""
        outcome = self._outcome()
        if outcome is None or not isinstance(event, WaitingForTraffic | Visiting | VisitDone):
            return
        if self._terminal:
            lines = curve_lines(outcome, min(_WIDEST, self._columns()))
            self._draw([*lines, status(event.progress)])
        elif isinstance(event, WaitingForTraffic):
            if not self._waiting:
                log("specdeck: waiting for traffic")
            self._waiting = True
        elif isinstance(event, VisitDone) and event.progress.done % len(outcome.plan.ks) == 0:
            best = outcome.analysis.optimum
            so_far = "" if best is None else f", best so far k={best.k}"
            log(f"sweep: {event.progress.done} of {event.progress.of} visits{so_far}")

    def close(self) -> None:
        """Takes the drawing away; the result stands on stdout."""
        if self._drawn:
            self._draw([])

    def _draw(self, lines: Sequence[str]) -> None:
        draw_lines(lines, above=self._drawn, width=self._columns())
        self._drawn = len(lines)


def status(progress: SweepProgress) -> str:
    """How far a sweep is, on one line.

    >>> status(SweepProgress(12, 54, 3, 42.0))
    'sweep: 12 of 54 visits, at k=3, 42 s left'
    """
    if progress.k is None and not progress.done:
        return "sweep: waiting for traffic"
    where = "" if progress.k is None else f", at k={progress.k}"
    left = format_duration(progress.seconds_left)
    return f"sweep: {progress.done} of {progress.of} visits{where}, {left} left"


def curve_lines(outcome: SweepOutcome, width: int) -> list[str]:
    """A line for each k of the sweep, in `width` columns; nothing before the first visit."""
    rows = [(k, _figures(k, outcome)) for k in outcome.plan.ks]
    tops = [figures.top for _, figures in rows if figures]
    if not tops:
        return []
    best = outcome.analysis.optimum
    return ["  k  tokens/s  95 % interval  ms/token"] + [
        _row(k, figures, max(tops), max(_LEAST_BAR, width - _FIGURES - 2), best)
        for k, figures in rows
    ]


@dataclass(frozen=True, slots=True)
class _Figures:
    """What one k came to; a k that was visited once has no interval yet."""

    tokens_per_second: float
    ms_per_token: float
    interval: tuple[float, float] | None

    @property
    def top(self) -> float:
        return max(self.tokens_per_second, *(self.interval or (0.0,)))


def _figures(k: int, outcome: SweepOutcome) -> _Figures | None:
    for point in outcome.analysis.curve:
        if point.k == k:
            speed, wait = point.tokens_per_second, point.seconds_per_token
            return _Figures(speed.value, wait.value * 1e3, (speed.low, speed.high))
    for sums in outcome.visits:
        if sums.k == k and (visit := sums.visit()) is not None:
            return _Figures(visit.tokens_per_second, visit.seconds_per_token * 1e3, None)
    return None


def _row(k: int, figures: _Figures | None, top: float, width: int, best: Optimum | None) -> str:
    mark = "►" if best is not None and k == best.k else " "
    if figures is None:
        return f"{mark}{k:>2}         –              –         –"
    tokens, wait = figures.tokens_per_second, figures.ms_per_token
    low, high = figures.interval or (None, None)
    interval = "–" if low is None else f"{low:.1f}–{high:.1f}"
    bar = "".join(text for text, _ in whisker(tokens, low, high, top, width))
    return f"{mark}{k:>2}  {tokens:>8.1f}  {interval:>13}  {wait:>8.1f}  {bar}".rstrip()


def verdict_lines(outcome: SweepOutcome) -> list[str]:
    """The optimum, what it rests on, the schedule and how the engine was left."""
    lines = [*_best_lines(outcome.analysis.optimum), _work_line(outcome)]
    if outcome.stopped:
        visits = f"{len(outcome.visits)} of {outcome.plan.visits} visits are made"
        lines.append(f"stopped    {outcome.stopped}: {visits}")
    if outcome.schedule:
        sizes = ", ".join(outcome.analysis.batch_sizes)
        lines.append(f"schedule   {schedule_line(outcome.schedule)}")
        measured = f"measured at {sizes} requests in a step"
        lines.append(f"           {measured}; other sizes: the nearest of these")
    return [*lines, _engine_line(outcome)]


def _best_lines(optimum: Optimum | None) -> list[str]:
    if optimum is None:
        return ["best k     not known: two rounds were not completed"]
    gains = []
    if optimum.over_target_only:
        gains.append(f"{percent(optimum.over_target_only)} over target-only")
    if optimum.over_next and optimum.next_k not in (None, 0):
        gains.append(f"{percent(optimum.over_next)} over k={optimum.next_k}")
    lines = [f"best k     {optimum.k}" + (f": {', '.join(gains)}" if gains else "")]
    if optimum.tied:
        names = ", ".join(str(k) for k in optimum.tied)
        lines.append(f"tied       k={names} cannot be told apart from it; more --seconds may help")
    return lines


def percent(gain: Interval) -> str:
    """A gain with its interval.

    >>> percent(Interval(0.071, 0.02, 0.12))
    '+7.1 % (+2.0 to +12.0)'
    >>> percent(Interval(2.2, -0.6, 24.6))
    '+220.0 % (-60.0 to more than +1000)'
    """
    low, high = gain.low * 100, gain.high * 100
    most = f"{high:+.1f}" if high <= _MOST_PERCENT else f"more than +{_MOST_PERCENT}"
    return f"{gain.value * 100:+.1f} % ({low:+.1f} to {most})"


def _work_line(outcome: SweepOutcome) -> str:
    batch = outcome.analysis.batch
    at = "" if batch is None else f", {batch:.1f} requests in a step on average"
    seconds = sum(visit.work.seconds for visit in outcome.visits)
    return f"measured   {len(outcome.visits)} visits, {seconds:.0f} s of work{at}"


def _engine_line(outcome: SweepOutcome) -> str:
    before, after = knobs(outcome.before), outcome.after
    if outcome.restored:
        return f"engine     as it was found: {before}"
    if after is None:
        return f"engine     not known; it was found with {before}"
    return f"engine     {knobs(after)}; it was found with {before}"


def knobs(found: Mapping[str, int | str]) -> str:
    """Knobs and values.

    >>> knobs({"k": 3, "mode": "speculate", "policy": "fixed", "fallback": "warm"})
    'k=3 mode=speculate policy=fixed'
    """
    return " ".join(f"{name}={value}" for name, value in found.items() if name != "fallback")
