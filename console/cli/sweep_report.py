"""A sweep in words: its progress on stderr, the curve, and the verdict."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdeck.console.cli.output import discard_stdout, draw_lines, log
from specdeck.console.widgets.blocks import whisker
from specdeck.engine.operations.hard_sweep import (
    PARAMETER,
    HardEvent,
    HardOutcome,
    HardVisitDone,
    HardVisiting,
)
from specdeck.engine.policy.table import span
from specdeck.engine.protocol.tuning import Interval
from specdeck.engine.sweep.analysis import Analysis, Optimum, SweepOutcome, schedule_line
from specdeck.engine.sweep.ending import knob_words
from specdeck.engine.sweep.hard import HardComparison
from specdeck.engine.sweep.runner import SweepProgress, VisitDone, Visiting, WaitingForTraffic
from specdeck.engine.text import format_duration

_SHOWN = (WaitingForTraffic, Visiting, VisitDone, HardVisiting, HardVisitDone)
_FIGURES = 42
"""Columns of a line before its bar."""
_LEAST_BAR = 8
WIDEST = 100
_MOST_PERCENT = 1000
"""Digits of an upper end beyond this one would promise knowledge."""


class SweepScreen:
    """A sweep's progress on stderr: the curve drawn over and over, or a line each round."""

    def __init__(
        self,
        outcome: Callable[[], SweepOutcome | HardOutcome | None],
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

    def show(self, event: HardEvent) -> None:
        """Tells of an event."""
        found = self._outcome()
        hard = found.comparison if isinstance(found, HardOutcome) else None
        outcome = found.sweep if isinstance(found, HardOutcome) else found
        if outcome is None or not isinstance(event, _SHOWN):
            return
        arms = len(outcome.plan.ks) + (hard is not None)
        if self._terminal:
            lines = curve_lines(outcome, min(WIDEST, self._columns()), hard)
            self._draw([*lines, status(event.progress, hard=isinstance(event, HardVisiting))])
        elif isinstance(event, WaitingForTraffic):
            if not self._waiting:
                log("specdeck: waiting for traffic")
            self._waiting = True
        elif isinstance(event, VisitDone | HardVisitDone) and event.progress.done % arms == 0:
            so_far = _describe_best_so_far(outcome.analysis.optimum)
            log(f"sweep: {event.progress.done} of {event.progress.of} visits{so_far}")

    def close(self) -> None:
        """Takes the drawing away; the result stands on stdout."""
        if self._drawn:
            self._draw([])

    def _draw(self, lines: Sequence[str]) -> None:
        draw_lines(lines, above=self._drawn, width=self._columns())
        self._drawn = len(lines)


def _describe_best_so_far(found: Optimum | None) -> str:
    if found is None:
        return ""
    if not found.told_apart:
        return f", no k told apart from k={found.k} so far"
    return f", best so far k={found.k}"


def status(progress: SweepProgress, *, hard: bool = False) -> str:
    """How far a sweep is, on one line; `hard` is a visit of an engine without speculation.

    >>> status(SweepProgress(12, 54, 3, 42.0))
    'sweep: 12 of 54 visits, at k=3, 42 s left'
    >>> status(SweepProgress(0, 54, None, 42.0), hard=True)
    'sweep: 0 of 54 visits, without speculation, 42 s left'
    """
    if progress.k is None and not progress.done and not hard:
        return "sweep: waiting for traffic"
    where = "" if progress.k is None else f", at k={progress.k}"
    if hard:
        where = ", without speculation"
    left = format_duration(progress.seconds_left)
    return f"sweep: {progress.done} of {progress.of} visits{where}, {left} left"


def curve_lines(outcome: SweepOutcome, width: int, hard: HardComparison | None = None) -> list[str]:
    """A line for each k of the sweep, in `width` columns; nothing before the first visit.

    An engine without speculation is the line `no`.
    """
    best = outcome.analysis.best_k
    rows = [(f"{'►' if k == best else ' '}{k:>2}", _figures(k, outcome)) for k in outcome.plan.ks]
    if hard is not None:
        rows.append((" no", _hard_figures(hard)))
    tops = [figures.top for _, figures in rows if figures]
    if not tops:
        return []
    return ["  k  tokens/s  95 % interval  ms/token"] + [
        _row(label, figures, max(tops), max(_LEAST_BAR, width - _FIGURES - 2))
        for label, figures in rows
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
    for sums in outcome.counted:
        if sums.k == k and (visit := sums.visit()) is not None:
            return _Figures(visit.tokens_per_second, visit.seconds_per_token * 1e3, None)
    return None


def _hard_figures(found: HardComparison) -> _Figures | None:
    speed, wait = found.tokens_per_second, found.seconds_per_token
    return None if speed is None or wait is None else _Figures(speed, wait * 1e3, None)


def _row(label: str, figures: _Figures | None, top: float, width: int) -> str:
    if figures is None:
        return f"{label}         –              –         –"
    tokens, wait = figures.tokens_per_second, figures.ms_per_token
    low, high = figures.interval or (None, None)
    interval = "–" if low is None else f"{low:.1f}–{high:.1f}"
    bar = "".join(text for text, _ in whisker(tokens, low, high, top, width))
    return f"{label}  {tokens:>8.1f}  {interval:>13}  {wait:>8.1f}  {bar}".rstrip()


def verdict_lines(outcome: SweepOutcome) -> list[str]:
    """The optimum, what it rests on, the schedule and how the engine was left."""
    lines = [*_best_lines(outcome.analysis.optimum), _work_line(outcome)]
    if outcome.stopped:
        visits = f"{len(outcome.visits)} of {outcome.plan.visits} visits are made"
        lines.append(f"stopped    {outcome.stopped}: {visits}")
    if outcome.schedule:
        lines += _schedule_lines(outcome.analysis, outcome.schedule)
    return [*lines, _engine_line(outcome)]


def _schedule_lines(found: Analysis, schedule: list[list[int]]) -> list[str]:
    chance = "" if found.finds_schedule else "not told apart: "
    measured = f"measured at {', '.join(found.batch_sizes)} requests in a step"
    lines = [
        f"schedule   {chance}{schedule_line(schedule)}",
        f"           {measured}; other sizes: the nearest of these",
    ]
    if found.untold:
        sizes = ", ".join(span(number) for number in found.best if number in found.untold)
        lines.append(f"           no k was told apart from another at {sizes}")
    return lines


def _best_lines(optimum: Optimum | None) -> list[str]:
    if optimum is None:
        return ["best k     not known: two rounds were not completed"]
    gains = []
    if optimum.over_target_only:
        gains.append(f"{percent(optimum.over_target_only)} over target-only")
    if optimum.over_next and optimum.next_k not in (None, 0):
        gains.append(f"{percent(optimum.over_next)} over k={optimum.next_k}")
    if not optimum.told_apart:
        return [
            f"best k     not known: no k was told apart from k={optimum.k}",
            *([f"           k={optimum.k}: {', '.join(gains)}"] if gains else ()),
            *_unknown_lines(optimum),
            "           more --seconds may help",
        ]
    lines = [f"best k     {optimum.k}" + (f": {', '.join(gains)}" if gains else "")]
    if optimum.tied:
        names = ", ".join(str(k) for k in optimum.tied)
        lines.append(f"tied       k={names} cannot be told apart from it; more --seconds may help")
    return [*lines, *_unknown_lines(optimum)]


def _unknown_lines(optimum: Optimum) -> list[str]:
    names = ", ".join(str(k) for k in optimum.unknown)
    return [f"           not measured in two rounds: k={names}"] if names else []


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


def hard_lines(outcome: HardOutcome) -> list[str]:
    """What soft k = 0 costs more than no speculation, what the best k is worth, who is told."""
    found = outcome.comparison
    cost, told = found.soft_cost, outcome.told
    if cost is None:
        return ["hard       not known: two rounds were not completed"]
    lines = [f"hard       soft k=0 takes {cost.of_time()} than no speculation"]
    if found.over_hard is not None:
        lines.append(f"           best k={found.best_k}: {percent(found.over_hard)} over it")
    if told is not None:
        lines.append(f"           the engine tells its savings by it: {PARAMETER}={told:g}")
    elif found.known_cost is None:
        lines.append("           not told to the engine: too uncertain; more --seconds may help")
    else:
        lines.append("           not told to the engine")
    return lines


def _work_line(outcome: SweepOutcome) -> str:
    batch = outcome.analysis.batch
    at = "" if batch is None else f", {batch:.1f} requests in a step on average"
    counted = outcome.counted
    seconds = sum(visit.work.seconds for visit in counted)
    without = len(outcome.visits) - len(counted)
    left_out = f", {without} left out" if without else ""
    return f"measured   {len(counted)} visits{left_out}, {seconds:.0f} s of work{at}"


def _engine_line(outcome: SweepOutcome) -> str:
    before, after = knob_words(outcome.before), outcome.after
    if outcome.restored:
        return f"engine     as it was found: {before}"
    if after is None:
        return f"engine     not known; it was found with {before}"
    return f"engine     {knob_words(after)}; it was found with {before}"


def has_to_tell(outcome: SweepOutcome, *, as_json: bool) -> bool:
    """Whether its result is printed, and not only why there is none.

    A script that interrupts a sweep is told what it came to, also when that is nothing yet.
    """
    is_cut = outcome.interrupted or outcome.failure is not None
    return bool(outcome.visits) or (as_json and is_cut)


def print_outcome(outcome: SweepOutcome, print_it: Callable[[], None]) -> None:
    """Has a sweep printed; raises LeftTurned, whatever else went wrong, where it could not give
    the engine back."""
    failure = outcome.failure
    try:
        print_it()
    except OSError as error:  # of a pipe that nobody reads as well: this must not go unsaid
        if failure is None:
            raise
        log(f"specdeck: the result cannot be written: {error.strerror or type(error).__name__}")
        discard_stdout()
    for line in outcome.others:
        log(f"specdeck: {line}")
    if failure is not None:
        if outcome.error is not None:
            log(f"specdeck: {outcome.error.line()}")
        raise failure
