"""What takes the engine's time beside drafting: prompts, preemption, lost prefixes, no graphs."""

from __future__ import annotations

from math import inf
from statistics import fmean
from typing import Final

from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.cohorts import Cohort, CohortCounts
from specdeck.engine.special_functions import special_functions
from specdeck.engine.why.causes import (
    MATERIAL,
    RULED_OUT,
    Cause,
    Figure,
    Finding,
    Group,
    RuledOut,
    Untold,
    dismiss,
)
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import (
    CONFIDENCE,
    FALSE_ALARMS,
    LEAST_REQUESTS,
    Estimate,
    Pair,
    Trials,
    difference,
)
from specdeck.engine.why.step_profile import prefill_share, timed_steps

_CACHE: Final = "prefix_cache"
_GRAPHS: Final = "beyond_graphs"
MUCH_PREFILL = 0.3
"""Of the time: less is what any traffic has, where no baseline tells what is usual."""
_MORE_PREFILL = 0.1
"""Of the time, above the baseline's."""
LEAST_PREEMPTIONS = 5
_LEAST_PREEMPTED = 0.05
"""Preemptions per finished request."""
_LEAST_LOST = 0.1
"""Of the requests, by which fewer find half of their prompt cached."""
_HALF_CACHED = frozenset({"50-74%", "75-100%"})
_SHARE = {"0%": 0.0, "1-24%": 0.125, "25-49%": 0.375, "50-74%": 0.625, "75-100%": 0.875}


def compare_load(evidence: Evidence) -> list[Finding]:
    """Prompts, preemptions, the prefix cache and graphs, as shares of the engine's time."""
    timed = timed_steps(evidence.steps)
    share = prefill_share(timed) if timed else None
    preemption, again = judge_preemption(evidence, share)
    cache, lost = judge_prefix_cache(evidence, share)
    prefill = judge_prefill(evidence, share, min(1.0, again + lost))
    return [preemption, cache, prefill, judge_graphs(evidence)]


def judge_preemption(evidence: Evidence, prefill: Estimate | None) -> tuple[Finding, float]:
    """Whether requests are pushed out of the KV cache and computed once more; and what share of
    all prompt tokens that computed are theirs."""
    count, total = evidence.preemptions, evidence.span.total
    if count is None:
        return Untold("preemption", "not_told"), 0.0
    if not count:
        return RuledOut("preemption", None), 0.0
    if not total.requests:
        return Untold("preemption", "few_requests"), 0.0
    rate = count / total.requests
    low, high = _poisson(count)
    effect = Estimate(rate, low / total.requests, high / total.requests)
    again, cost = 0.0, None
    if evidence.preempted_context is not None:
        tokens = count * evidence.preempted_context
        computed = sum(step.prefill for step in evidence.steps)
        again = max(0.0, min(1.0, tokens / max(1.0, _in_span(evidence, computed))))
    if prefill is not None and again:
        cost = prefill.over(again)
    if count >= LEAST_PREEMPTIONS and effect.low >= _LEAST_PREEMPTED:
        seats = _seats(evidence)
        figure = Figure("per_request", rate, 0.0)
        return Cause("preemption", figure, effect, cost, suggested=seats), again
    return dismiss("preemption", cost), again


def _in_span(evidence: Evidence, computed: int) -> float:
    """Prompt tokens computed while the span was watched, from those of the remembered steps."""
    steps, span = evidence.steps, evidence.span
    seconds = steps[-1].t - steps[0].t if len(steps) > 1 else 0.0
    return computed * (span.end - span.start) / seconds if seconds > 0 else 0.0


def _seats(evidence: Evidence) -> int:
    """Three quarters of the requests that run together now: they would fit."""
    batch = fmean(step.requests for step in evidence.steps) if evidence.steps else 8.0
    return max(1, int(batch * 0.75))


def _poisson(count: int) -> tuple[float, float]:
    """Garwood's exact limits of a count."""
    gammaincinv = special_functions().gammaincinv
    tail = (1 - CONFIDENCE) / 2
    return float(gammaincinv(count, tail)), float(gammaincinv(count + 1, 1 - tail))


def judge_prefill(evidence: Evidence, share: Estimate | None, other: float) -> Finding:
    """Whether computing prompts takes the time that tokens could; without the share `other` of it
    that another cause accounts for."""
    if share is None:
        return Untold("prefill_share", "no_steps" if not evidence.steps else "few_steps")
    own = share.over(1 - other)
    then = None if evidence.baseline is None else evidence.baseline.steps.prefill
    if then is None:
        if own.low >= MUCH_PREFILL:
            return Cause("prefill_share", Figure("time_share", own.value, None), own, own)
        if own.high < MUCH_PREFILL and own.high > RULED_OUT:
            return Untold("prefill_share", "no_baseline", own)  # it may be what is usual
        return dismiss("prefill_share", own)
    more = Estimate(own.value - then, own.low - then, own.high - then)
    if more.low >= _MORE_PREFILL:
        return Cause("prefill_share", Figure("time_share", own.value, then), more, more)
    return dismiss("prefill_share", more)


def judge_prefix_cache(evidence: Evidence, prefill: Estimate | None) -> tuple[Finding, float]:
    """Whether prompts that used to be cached are not; and what share of all prompt tokens that
    were computed would have been cached."""
    if evidence.baseline is None:
        return Untold(_CACHE, "no_baseline"), 0.0
    now, then = evidence.span, evidence.baseline.span
    words = {cohort.prompt for cohort in now.cells} & {cohort.prompt for cohort in then.cells}
    pairs, tokens, lost = [], 0.0, 0.0
    for word in sorted(words):
        (some, cached, share), (some_then, cached_then, share_then) = (
            _count_cached(span, word) for span in (now, then)
        )
        if min(some, some_then) < LEAST_REQUESTS:
            continue
        pairs.append(Pair(Trials(cached_then, some_then), Trials(cached, some)))
        prompt = sum(c.prompt_tokens for h, c in now.cells.items() if h.prompt == word)
        tokens += prompt * (1 - share)
        lost += prompt * max(0.0, share_then - share)
    if not pairs:
        return Untold(_CACHE, "few_requests"), 0.0
    sure, shown = difference(pairs, 1 - 2 * FALSE_ALARMS), difference(pairs, CONFIDENCE)
    part = min(1.0, lost / tokens) if tokens else 0.0
    cost = None if prefill is None else prefill.over(part)
    if sure.low > 0 and shown.value >= _LEAST_LOST:
        met = sum(pair.worse.met for pair in pairs) / sum(pair.worse.of for pair in pairs)
        figure = Figure("cached_share", met, met + shown.value)
        return Cause(_CACHE, figure, shown, cost, Group("cached", ("0%",)), "fell"), part
    return dismiss(_CACHE, cost), 0.0


def _count_cached(span: CohortSpan, word: str) -> tuple[int, int, float]:
    """Requests with prompts of a length, those with half of it cached, and the share of it."""
    found: list[tuple[Cohort, CohortCounts]] = [
        (cohort, counts)
        for cohort, counts in span.cells.items()
        if cohort.prompt == word and cohort.cached in _SHARE
    ]
    requests = sum(counts.requests for _, counts in found)
    cached = sum(counts.requests for cohort, counts in found if cohort.cached in _HALF_CACHED)
    tokens = sum(counts.prompt_tokens for _, counts in found)
    shares = sum(_SHARE[cohort.cached] * counts.prompt_tokens for cohort, counts in found)
    return requests, cached, shares / tokens if tokens else 0.0


def judge_graphs(evidence: Evidence) -> Finding:
    """Whether batches are too large for the CUDA graphs that were captured."""
    state = evidence.state
    if state is None:
        return Untold(_GRAPHS, "not_told")
    if not state.full_graphs:
        return RuledOut(_GRAPHS, None)
    steps = [s for s in evidence.steps if (s.seconds or 0) > 0 and not s.prefill and s.requests > 0]
    if not steps:
        return Untold(_GRAPHS, "no_steps")

    def reach(step: Step) -> float:
        return state.full_graphs[step.k].requests if step.k < len(state.full_graphs) else inf

    beyond = [step for step in steps if step.requests > reach(step)]
    seconds = sum(step.seconds or 0.0 for step in steps)
    share = sum(step.seconds or 0.0 for step in beyond) / seconds
    if share < MATERIAL:
        return RuledOut(_GRAPHS, Estimate(0.0, 0.0, share))
    batch = max(step.requests for step in beyond)
    fits = [k for k, each in enumerate(state.full_graphs) if each.requests >= batch and k]
    effect = Estimate(share, share, share)  # a count of time, not a sample
    figure = Figure("time_share", share, 0.0)
    cost = _graph_cost(steps, beyond)
    return Cause(_GRAPHS, figure, effect, cost, suggested=max(fits, default=0))


def _graph_cost(steps: list[Step], beyond: list[Step]) -> Estimate | None:
    """What steps without a graph take beyond what a line through the others says."""
    outside = {id(step) for step in beyond}
    within = [(float(s.requests), s.seconds or 0.0) for s in steps if id(s) not in outside]
    if len({requests for requests, _ in within}) < 2:
        return None
    mean_x, mean_y = fmean(x for x, _ in within), fmean(y for _, y in within)
    spread = sum((x - mean_x) ** 2 for x, _ in within)
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in within) / spread)
    extra = [(s.seconds or 0.0) - (mean_y + slope * (s.requests - mean_x)) for s in beyond]
    whole = sum(s.seconds or 0.0 for s in steps)
    value = max(0.0, sum(extra) / whole)
    return Estimate(value, value * 0.5, min(0.99, value * 1.5))
