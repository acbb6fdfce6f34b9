"""Whether the engine's threads wait for a CPU that other work has, or that a quota keeps from them.

Linux says how long the threads that make steps were ready to run and had no CPU. What a worker
waits delays its step. What the engine core waits does so but in part: while a worker computes it
spins, and gives its CPU away. So the worker's waiting is the figure, and all that either of them
waited is the most that waiting can explain: a step that became slower by more than that is slower
by itself, and one that became slower by less is not called so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean, stdev
from typing import Final

from specdeck.engine.why.causes import Cause, Figure, Finding, Movement, Untold, dismiss
from specdeck.engine.why.cpu_wait import CpuWait
from specdeck.engine.why.evidence import Evidence
from specdeck.engine.why.figures import Estimate
from specdeck.engine.why.step_shift import LEAST_SHIFT

_NAME: Final = "cpu_contention"
_STEPS: Final = "step_time_latched"
MUCH_WAITING = 0.15
"""Of the time: threads of an engine that shares two cores with its own API server wait 13 %."""
_ERRORS = 2.5
"""Standard errors on either side, of a dozen pieces."""


def judge_contention(evidence: Evidence, steps: Sequence[Finding]) -> list[Finding]:
    """Whether threads waited for a CPU; and `steps` less what that explains of them."""
    now = evidence.waits
    if not now:
        return [Untold(_NAME, "no_waiting"), *steps]
    before = evidence.baseline.waits if evidence.baseline is not None else ()
    kept: list[Finding] = []
    explained: Cause | None = None
    for one in steps:
        if isinstance(one, Cause):
            own = _discount(one, now, before)
            if isinstance(own, Untold):
                explained = one
            kept.append(own)
        else:
            kept.append(one)
    return [_judge(evidence, explained), *kept]


def _discount(slower: Cause, now: Sequence[CpuWait], baseline: Sequence[CpuWait]) -> Finding:
    """A step that became slower, without what waiting explains of that."""
    since = slower.since
    if since is None:
        before = list(baseline)
    else:
        # Not known before the look: as if nobody had waited then.
        before = [one for one in now if one.end <= since]
        now = [one for one in now if one.start >= since] or now[-1:]
    against = slower.figure.against or 0.0
    explained = _mean_most(now) * slower.figure.value - _mean_most(before) * against
    explained = max(0.0, explained)
    own = slower.effect.value - explained
    cost = slower.cost
    if cost is not None and slower.effect.value > 0:
        cost = Estimate(
            cost.value * max(0.0, own) / slower.effect.value,
            min(cost.low, cost.low * max(0.0, own) / slower.effect.value), cost.high,
        )  # fmt: skip
    if own < LEAST_SHIFT * against or slower.effect.high <= explained:
        return Untold(_STEPS, "cpu_contention", cost)
    low = min(own, slower.effect.low - explained)
    return replace(slower, effect=Estimate(own, low, slower.effect.high), cost=cost)


def _mean_most(waits: Sequence[CpuWait]) -> float:
    seconds = sum(one.end - one.start for one in waits)
    return sum(one.most * (one.end - one.start) for one in waits) / seconds if seconds > 0 else 0.0


def _judge(evidence: Evidence, slower: Cause | None) -> Finding:
    waits, baseline = evidence.waits, evidence.baseline
    share = _estimate([one.waiting for one in waits])
    most = _mean_most(waits)
    if slower is None and share.low < MUCH_WAITING:
        return dismiss(_NAME, share)
    if slower is not None and share.value < MUCH_WAITING:  # the engine core's, then
        share = Estimate(most, min(most, share.value), most)
    before = _estimate([one.waiting for one in baseline.waits]) if (
        baseline is not None and baseline.waits
    ) else None  # fmt: skip
    throttled = [one.throttled for one in waits if one.throttled is not None]
    cost = share if slower is None or slower.cost is None else slower.cost
    step = _step_ms(evidence)
    figure = Figure("time_share", share.value, None if before is None else before.value)
    effect = share
    if step is not None:
        ms_before = None if before is None else before.value * step
        figure, effect = Figure("waiting_ms", share.value * step, ms_before), share.over(step)
    return Cause(
        _NAME, figure, effect, cost,
        movement=_movement(share, before, is_slower=slower is not None),
        since=None if slower is None else slower.since,
        throttled=fmean(throttled) if throttled else None,
    )  # fmt: skip


def _movement(share: Estimate, before: Estimate | None, *, is_slower: bool) -> Movement:
    if before is None:
        return "unknown"
    if share.low <= before.high and not is_slower:
        return "always"
    return "more" if before.value >= MUCH_WAITING else "fell"


def _estimate(shares: Sequence[float]) -> Estimate:
    """The mean of pieces, and what it lies between."""
    mean = fmean(shares)
    if len(shares) < 3:
        return Estimate(mean, mean * 0.5, min(1.0, mean * 1.5))
    error = _ERRORS * stdev(shares) / sqrt(len(shares))
    return Estimate(mean, max(0.0, mean - error), min(1.0, mean + error))


def _step_ms(evidence: Evidence) -> float | None:
    timed = [step.seconds for step in evidence.steps or evidence.step_means if step.seconds]
    return fmean(timed) * 1e3 if timed else None
