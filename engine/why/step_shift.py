"""Whether steps became slower: since a moment within those remembered, or against the baseline.

*Latched* means that even the quickest steps are slower than before, until now, and by the same
amount: a busy neighbour makes some steps slow and not the quickest ones, and a machine that became
slower makes long steps lose more than short ones. The change point is the largest of a cumulative
sum over blocks of steps, held against Kolmogorov's distribution with the variance that neighbours
in time share; `FALSE_ALARMS` is the chance that it is passed where nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from operator import attrgetter
from statistics import fmean, median, quantiles

from specdeck.engine.why.causes import RULED_OUT, Cause, Figure, Finding, RuledOut, Untold
from specdeck.engine.why.evidence import Evidence
from specdeck.engine.why.figures import FALSE_ALARMS, Estimate
from specdeck.engine.why.step_profile import (
    Kind,
    StepProfile,
    StepTime,
    TimedStep,
    group_steps,
    summarise,
    timed_steps,
)

LEAST_SHIFT = 0.1
"""Of a step's time."""
_APART = 1.8
"""Times that a kind of steps takes as long as another one: then an amount can be told from a
factor."""
_CLEARLY = 0.6
"""A factor leaves less than so much of what an amount leaves."""
_BLOCK = 16
"""Steps whose median is one point of the sum."""
_LEAST_BLOCKS = 12
_EDGE = 3
"""Blocks on either side of a change point at least."""
_TERMS = 20
_FAIR_PART = 0.25
"""Of the steps of now, that kinds which were made before as well must have."""
_MOST_KINDS = 64
"""Kinds of steps whose levels are fitted to each other, which takes the cube of their number."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """Where a series changed its level most."""

    index: int
    """The first value of the new level."""
    p: float
    """The chance of as large a change where there is none."""
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def separated(self) -> bool:
        """Whether four fifths after lie above four fifths before."""
        return quantiles(self.after, n=5)[0] > quantiles(self.before, n=5)[3]


def find_change(values: Sequence[float], *, edge: int = _EDGE) -> ChangePoint | None:
    """The change point of a series; None of too few values, or of equal ones.

    >>> found = find_change([1.0, 1.1, 0.9, 1.0, 1.1, 0.9] * 3 + [2.0, 2.1, 1.9, 2.0] * 3)
    >>> found.index, found.p < 0.001, found.separated
    (18, True, True)
    """
    count = len(values)
    if count < 2 * edge + 2:
        return None
    mean, running, best, at = fmean(values), 0.0, -1.0, edge
    for index, value in enumerate(values[:-edge], start=1):
        running += value - mean
        if index >= edge and abs(running) > best:
            best, at = abs(running), index
    before, after = tuple(values[:at]), tuple(values[at:])
    spread = _long_run_deviation(before, after)
    if spread <= 0:
        return None if best <= 0 else ChangePoint(at, 0.0, before, after)
    return ChangePoint(at, _kolmogorov(best / (spread * sqrt(count))), before, after)


def _long_run_deviation(*parts: Sequence[float]) -> float:
    """The deviation of sums of neighbours: what is alike from one to the next adds up."""
    left = [value - fmean(part) for part in parts for value in part]
    count = len(left)
    variance = sum(value * value for value in left) / count
    lags = max(1, round(4 * (count / 100) ** (2 / 9)) + 1)
    total = variance
    for lag in range(1, lags + 1):
        alike = sum(a * b for a, b in zip(left, left[lag:], strict=False)) / count
        total += 2 * (1 - lag / (lags + 1)) * alike
    # The mean of each side was taken from the values themselves.
    return sqrt(max(total, variance / 2) * count / max(1, count - len(parts)))


def _kolmogorov(x: float) -> float:
    """The chance that a Brownian bridge goes as far as `x`."""
    if x < 0.2:
        return 1.0
    total = sum((1.0 if n % 2 else -1.0) * exp(-2 * n * n * x * x) for n in range(1, _TERMS))
    return min(1.0, max(0.0, 2 * total))


def compare_steps(evidence: Evidence) -> list[Finding]:
    """Whether steps are slower than they were."""
    steps = evidence.steps or evidence.step_means
    if not steps:
        return [Untold("step_time_latched", "no_steps")]
    timed = timed_steps(steps)
    latched = find_latch(timed, evidence)
    if isinstance(latched, Cause):
        return [latched]
    baseline = evidence.baseline
    if baseline is None or not baseline.steps.times:
        return [latched]
    # What is remembered goes back to before the look, when steps may have been as ever.
    seconds = evidence.span.end - evidence.span.start
    looked = [step for step in timed if step.t >= timed[-1].t - seconds]
    against = compare_profiles(baseline.steps, looked)
    if isinstance(against, Untold) and isinstance(latched, RuledOut):
        return [latched]
    return [against]


def find_latch(timed: Sequence[TimedStep], evidence: Evidence) -> Finding:
    """Whether every step became slower within those remembered, and stayed so."""
    grouped = group_steps(timed)
    usual = {*sorted(grouped, key=lambda kind: -len(grouped[kind]))[:_MOST_KINDS]}
    known = [step for step in timed if step.kind in usual]
    blocks = [known[first : first + _BLOCK] for first in range(0, len(known) - _BLOCK + 1, _BLOCK)]
    if len(blocks) < _LEAST_BLOCKS:
        return Untold("step_time_latched", "few_steps")
    centred = _centre(known)
    values = [
        median(centred[first : first + _BLOCK]) for first in range(0, len(blocks) * _BLOCK, _BLOCK)
    ]
    found = find_change(values)
    if found is None:
        return RuledOut("step_time_latched", Estimate(0.0, 0.0, 0.0))
    shift = _shift(found)
    at = found.index * _BLOCK
    now = fmean(step.seconds for step in known[at:])
    cost = _cost(shift, now)
    is_shift = shift.value >= LEAST_SHIFT * (now - shift.value) and found.separated
    if found.p <= FALSE_ALARMS and is_shift:
        before, after = _middles(known[:at]), _middles(known[at:])
        alike = compare_alike(before, after)
        if alike is None:
            return Untold("step_time_latched", "few_steps")
        if is_in_proportion(before, after):
            return Untold("step_time_latched", "in_proportion", cost)
        half = (shift.high - shift.low) / 2
        shift = Estimate(alike.shift, alike.shift - half, alike.shift + half)
        cost = _cost(shift, alike.now.middle)
        if alike.is_slower:
            since = evidence.t - (timed[-1].t - blocks[found.index][0].t)
            figure = Figure("step_ms", alike.now.middle * 1e3, alike.then.middle * 1e3)
            return Cause("step_time_latched", figure, shift.over(1e3), cost, since=since)
    # A wave of the machine: what it comes to over the whole is next to nothing.
    return _dismiss(found, cost)


def _cost(shift: Estimate, seconds: float) -> Estimate:
    """The share of the speed that steps of so many `seconds` lose by a shift."""
    ends = (shift.value, shift.low, shift.high)
    return Estimate(*(max(-1.0, min(0.99, end / seconds)) for end in ends))


def _dismiss(found: ChangePoint, cost: Estimate) -> Finding:
    if found.p <= FALSE_ALARMS and cost.low > RULED_OUT:
        return Untold("step_time_latched", "wide", cost)
    return RuledOut("step_time_latched", cost)


def _middles(steps: Iterable[TimedStep]) -> dict[Kind, StepTime]:
    return {kind: summarise(seconds) for kind, seconds in group_steps(steps).items()}


@dataclass(frozen=True, slots=True)
class Alike:
    """Steps of the kinds that were made at two times, each summarised in seconds."""

    then: StepTime
    now: StepTime

    @property
    def shift(self) -> float:
        """How much longer the middle one takes."""
        return self.now.middle - self.then.middle

    @property
    def is_slower(self) -> bool:
        """Whether most steps take longer than the middle one did, and by enough."""
        return self.now.low > self.then.middle and self.shift >= LEAST_SHIFT * self.then.middle


def compare_alike(before: Mapping[Kind, StepTime], after: Mapping[Kind, StepTime]) -> Alike | None:
    """Steps of the same kinds before and after; None where no kind was made at both times.

    A kind weighs as the time that has fewer of its steps. Levels that are fitted from one kind to
    the next may be off where the traffic changed, and say then that steps became slower where
    other steps came. None as well where those of now are few of them: the steps in which a larger
    load comes up are of the kinds of the smaller one, and the API server is busy meanwhile.

    >>> one = {(1, 3, 0): StepTime(40, 1.0, 2.0, 3.0)}
    >>> other = {(8, 3, 0): StepTime(99, 7.0, 8.0, 9.0)}
    >>> compare_alike(one, {(1, 3, 0): StepTime(50, 4.0, 5.0, 6.0), **other}).now
    StepTime(steps=40, low=4.0, middle=5.0, high=6.0)
    >>> compare_alike(one, other)
    >>> compare_alike(one, {(1, 3, 0): StepTime(20, 4.0, 5.0, 6.0), **other})
    """
    weights = {
        kind: min(before[kind].steps, after[kind].steps) for kind in before.keys() & after.keys()
    }
    alike = sum(after[kind].steps for kind in weights)
    if not alike or alike < _FAIR_PART * sum(time.steps for time in after.values()):
        return None
    return Alike(_mean(before, weights), _mean(after, weights))


def _mean(times: Mapping[Kind, StepTime], weights: Mapping[Kind, int]) -> StepTime:
    whole = sum(weights.values())
    sums = [
        sum(weight * value(times[kind]) for kind, weight in weights.items())
        for value in (attrgetter("low"), attrgetter("middle"), attrgetter("high"))
    ]
    return StepTime(whole, *(each / whole for each in sums))


def is_in_proportion(before: Mapping[Kind, StepTime], after: Mapping[Kind, StepTime]) -> bool:
    """Whether long steps lost clearly more than short ones, each in proportion to what it took.

    False as well where all kinds take about as long, which tells nothing.

    >>> times = {(1, 1, n): StepTime(50, 0.0, 0.01 * n, 0.0) for n in (1, 2, 3)}
    >>> more = {kind: StepTime(50, 0.0, t.middle + 0.01, 0.0) for kind, t in times.items()}
    >>> twice = {kind: StepTime(50, 0.0, t.middle * 2, 0.0) for kind, t in times.items()}
    >>> is_in_proportion(times, more), is_in_proportion(times, twice)
    (False, True)
    """
    rows = [
        (min(before[kind].steps, after[kind].steps), before[kind].middle, after[kind].middle)
        for kind in before.keys() & after.keys()
    ]
    if not rows or max(x for _, x, _ in rows) < _APART * min(x for _, x, _ in rows):
        return False
    whole = sum(weight for weight, _, _ in rows)
    factor = sum(weight * y / x for weight, x, y in rows) / whole
    amount = sum(weight * (y - x) for weight, x, y in rows) / whole
    by_factor = sum(weight * (y / x - factor) ** 2 for weight, x, y in rows)
    by_amount = sum(weight * ((y - amount) / x - 1) ** 2 for weight, x, y in rows)
    return by_factor < _CLEARLY * by_amount


def _centre(steps: Sequence[TimedStep]) -> list[float]:
    """Seconds of each step above those of its kind, as the kinds are apart where they meet.

    Kinds that were seen at other times only would carry a change away with them; so levels are
    fitted to neighbours: a step is compared with the last one of another kind.
    """
    levels = _fit_levels(steps)
    return [step.seconds - levels[step.kind] for step in steps]


def _fit_levels(steps: Sequence[TimedStep]) -> Mapping[Kind, float]:
    """What a step of each kind takes above one of the most frequent kind, plus its level.

    By differences of steps next to each other, which a change of all of them leaves alone.
    """
    kinds: dict[Kind, int] = {}
    for step in steps:
        kinds[step.kind] = kinds.get(step.kind, 0) + 1
    jumps: dict[tuple[Kind, Kind], list[float]] = {}
    last: dict[Kind, tuple[int, float]] = {}
    for index, step in enumerate(steps):
        for other, (seen, seconds) in last.items():
            if other != step.kind and index - seen <= _NEAR:
                jumps.setdefault((other, step.kind), []).append(step.seconds - seconds)
        last[step.kind] = (index, step.seconds)
    main = max(kinds, key=lambda kind: kinds[kind])
    level = median(step.seconds for step in steps if step.kind == main)
    levels = {main: level}
    while len(levels) < len(kinds):
        reached = [
            (len(seconds), old, new, median(seconds))
            for (old, new), seconds in jumps.items()
            if (old in levels) != (new in levels)
        ]
        if not reached:  # never beside another: its own level has to do
            kind = next(kind for kind in kinds if kind not in levels)
            levels[kind] = median(step.seconds for step in steps if step.kind == kind)
            continue
        _, old, new, jump = max(reached)
        if old in levels:
            levels[new] = levels[old] + jump
        else:
            levels[old] = levels[new] - jump
    return levels


_NEAR = 64
"""Steps that are neighbours."""


def _shift(found: ChangePoint) -> Estimate:
    """How far the level after lies above that before."""
    value = fmean(found.after) - fmean(found.before)
    error = sqrt(sum(_long_run_deviation(part) ** 2 / len(part)
                     for part in (found.before, found.after)))  # fmt: skip
    return Estimate(value, value - 2 * error, value + 2 * error)


def compare_profiles(then: StepProfile, timed: Iterable[TimedStep]) -> Finding:
    """Whether steps take longer than in the baseline, of each kind that both have."""
    now = _middles(timed)
    alike = compare_alike(then.times, now)
    if alike is None:
        return Untold("step_time_latched", "few_steps")
    # From the quickest now to the slowest then: what lies between is no chance of a few steps.
    low, high = alike.now.low - alike.then.high, alike.now.high - alike.then.low
    shift = Estimate(alike.shift, low, high)
    cost = _cost(shift, alike.now.middle)
    if low > 0 and shift.value >= LEAST_SHIFT * alike.then.middle:
        if is_in_proportion(then.times, now):
            return Untold("step_time_latched", "in_proportion", cost)
        figure = Figure("step_ms", alike.now.middle * 1e3, alike.then.middle * 1e3)
        return Cause("step_time_latched", figure, shift.over(1e3), cost)
    if shift.value < LEAST_SHIFT * alike.then.middle:
        return RuledOut("step_time_latched", Estimate(cost.value, min(0.0, low), cost.value))
    return Untold("step_time_latched", "wide", cost)
