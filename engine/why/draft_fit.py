"""What is wrong with how the engine is set up: the draft of another target, k beyond what pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specdeck.engine.protocol.cohorts import BROUGHT, Cohort
from specdeck.engine.protocol.tuning import Outlook
from specdeck.engine.why.causes import (
    MATERIAL,
    Cause,
    Figure,
    Finding,
    Reason,
    RuledOut,
    Untold,
    dismiss,
)
from specdeck.engine.why.cohort_gaps import LEAST_GAP, Split, cost_of
from specdeck.engine.why.evidence import UNKNOWN_SPREAD, CohortSpan, Evidence
from specdeck.engine.why.figures import (
    CONFIDENCE,
    FALSE_ALARMS,
    LEAST_REQUESTS,
    Estimate,
    Pair,
    difference,
    own_tokens,
)

_DRAFT: Final = "draft_of_another_target"
_FALL: Final = "every_cohort_fell"
_K: Final = "k_beyond_what_pays"
HOPELESS = 0.1
"""Of the first drafted tokens: a draft of the same target and vocabulary has more accepted."""
_LEAST_REST = 0.1
"""Of all that is compared."""
_SHORTEST_S = 1e-7
"""Of a step that is believed."""
_TIMING = 0.03
"""How far a step's time at another k may be off, as a share of it."""


def judge_draft(evidence: Evidence, explained: Sequence[Split] = ()) -> list[Finding]:
    """Whether the draft belongs to the target, and whether every cohort fell alike.

    Cohorts that a cause of their own explains, `explained`, are left aside.
    """
    facts = evidence.facts
    span = _without(evidence.span.comparable(), explained)
    vocabularies = {facts.draft_tokenizer, facts.tokenizer}
    if None not in vocabularies and len(vocabularies) > 1:
        figure = Figure("same_vocabulary", 0.0, 1.0)
        sure = Estimate(1.0, 1.0, 1.0)
        return [Cause(_DRAFT, figure, sure, None, certain=True)]
    first = evidence.spread.first_drafted(span.total) if span.cells else None
    if first is None or not first.of or span.total.requests < LEAST_REQUESTS:
        reason: Reason = "no_drafts" if first is None or not first.of else "few_requests"
        return [Untold(_DRAFT, reason), Untold(_FALL, reason)]
    low, high = first.limits(1 - 2 * FALSE_ALARMS)
    fits = low >= HOPELESS or _has_fitted(evidence)
    if high < HOPELESS and not fits:
        shown = first.limits(CONFIDENCE)
        effect = Estimate(first.rate, *shown)
        figure = Figure("acceptance", first.rate, None)
        cost = _cost_of_drafting(evidence)
        return [Cause(_DRAFT, figure, effect, cost)]
    everywhere = _judge_fall(evidence, span)
    if isinstance(everywhere, Cause) and _other_draft(evidence):
        other = Cause(
            _DRAFT, everywhere.figure, everywhere.effect, everywhere.cost,
            movement="fell", certain=True,
        )  # fmt: skip
        return [other]
    return [RuledOut(_DRAFT, None) if fits else Untold(_DRAFT, "wide"), everywhere]


def _without(span: CohortSpan, explained: Sequence[Split]) -> CohortSpan:
    kept = {
        cohort: counts
        for cohort, counts in span.cells.items()
        if not any(split.has(cohort) for split in explained)
    }
    return CohortSpan(span.start, span.end, span.k_max, kept)


def _has_fitted(evidence: Evidence) -> bool:
    """Whether first tokens of this very draft were accepted earlier in the engine's life.

    Then it is the target's own, and what nobody accepts now is text that it cannot guess; with
    nothing to compare with, no test could say so.
    """
    if evidence.earlier is None or evidence.baseline is None:
        return False
    total = evidence.earlier.comparable().total
    first = UNKNOWN_SPREAD.first_drafted(total)
    return total.requests >= LEAST_REQUESTS and first.limits(1 - 2 * FALSE_ALARMS)[0] >= HOPELESS


def _other_draft(evidence: Evidence) -> bool:
    """Whether the baseline was taken with other weights of target or draft."""
    now, then = evidence.facts, evidence.baseline.facts if evidence.baseline else None
    if then is None:
        return False
    pairs = ((now.draft, then.draft), (now.target, then.target))
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _judge_fall(evidence: Evidence, span: CohortSpan) -> Finding:
    """Whether the same requests are accepted less than before, whatever cohort they are of."""
    if evidence.baseline is None:
        return Untold(_FALL, "no_baseline")
    then = evidence.baseline.span.comparable()
    both = [cohort for cohort in span.cells if cohort in then.cells]
    before = evidence.baseline.spread if evidence.baseline.spread.tokens else evidence.spread
    fell = {
        cohort: Pair(before.trials(then.cells[cohort]), evidence.spread.trials(span.cells[cohort]))
        for cohort in both
    }
    fell = {cohort: pair for cohort, pair in fell.items() if pair.better.of and pair.worse.of}
    pairs = list(fell.values())
    requests = sum(span.cells[cohort].requests for cohort in both)
    if not pairs or requests < LEAST_REQUESTS:
        return Untold(_FALL, "few_requests")
    sure, shown = difference(pairs, 1 - 2 * FALSE_ALARMS), difference(pairs, CONFIDENCE)
    total = evidence.span.comparable().total
    weight = sum(own_tokens(span.cells[cohort]) for cohort in both) / max(1, own_tokens(total))
    cost = cost_of(evidence.span.comparable(), shown, weight)
    if sure.low > 0 and shown.value >= LEAST_GAP and cost.value >= MATERIAL:
        if _is_of_one_kind(fell):
            return Untold(_FALL, "few_requests", cost)
        met = sum(p.worse.met for p in pairs) / sum(p.worse.of for p in pairs)
        figure = Figure("output_from_drafts", met, met + shown.value)
        return Cause(_FALL, figure, shown, cost, movement="fell")
    return dismiss(_FALL, cost)


def _is_of_one_kind(fell: Mapping[Cohort, Pair]) -> bool:
    """Whether the fall goes away where requests with one word in common are left out.

    Then it is theirs, and they are too few for a cause of their own. A rest of next to none is no
    witness.
    """
    least = _LEAST_REST * sum(pair.worse.of for pair in fell.values())
    for by in BROUGHT:
        for word in {getattr(cohort, by) for cohort in fell}:
            rest = [pair for cohort, pair in fell.items() if getattr(cohort, by) != word]
            if sum(pair.worse.of for pair in rest) < least:
                continue
            if difference(rest, CONFIDENCE).value < LEAST_GAP:
                return True
    return False


def _cost_of_drafting(evidence: Evidence) -> Estimate | None:
    """What drafts that nobody accepts take, where the engine has timed k = 0."""
    outlook = {one.k: one for one in evidence.tuning.outlook} if evidence.tuning else {}
    state, alone = evidence.state, outlook.get(0)
    now = outlook.get(state.k) if state is not None else None
    if alone is None or now is None or not (alone.timed and now.timed):
        return None
    rates = (alone.tokens_per_second or 0.0, now.tokens_per_second or 0.0)
    if min(rates) <= 0:
        return None
    value = max(0.0, 1 - rates[1] / rates[0])
    return Estimate(value, max(0.0, value - _TIMING), min(0.99, value + _TIMING))


@dataclass(frozen=True, slots=True)
class _Option:
    k: int
    gain: Estimate
    """Over the present k, as a share of the present speed."""


def judge_k(evidence: Evidence) -> Finding:
    """Whether a smaller k would commit more tokens a second.

    The positions accepted in the span say what each k commits, the engine's own measurements
    what its steps take.
    """
    state, tuning = evidence.state, evidence.tuning
    if state is None or tuning is None:
        return Untold(_K, "not_told")
    if state.policy != "fixed":
        return Untold(_K, "policy_moves_k")
    if not state.k or state.mode == "target-only":
        return Untold(_K, "no_drafts")
    total = evidence.span.comparable().total
    if total.requests < LEAST_REQUESTS:
        return Untold(_K, "few_requests")
    seconds = _step_seconds(tuning.outlook)
    if state.k not in seconds or len(seconds) < 2:
        # Timed at another batch size, as by a sweep under another load, it says nothing of this.
        elsewhere = any(one.k != state.k for one in tuning.curve)
        return Untold(_K, "not_timed_here" if elsewhere else "not_timed")
    options = [
        _Option(k, _gain(evidence, k, state.k, seconds)) for k in sorted(seconds) if k < state.k
    ]
    if not options:
        return Untold(_K, "not_timed")
    best = max(options, key=lambda one: one.gain.value)
    cost = Estimate(*(end / (1 + end) for end in (best.gain.value, best.gain.low, best.gain.high)))
    if best.gain.low > 0 and cost.value >= MATERIAL:
        figure = Figure("tokens_per_second", 1.0, 1.0 + best.gain.value)
        return Cause(_K, figure, best.gain, cost, suggested=best.k)
    if best.gain.value <= MATERIAL:
        return RuledOut(_K, cost)
    return Untold(_K, "wide", cost)


def _step_seconds(outlook: Sequence[Outlook]) -> dict[int, float]:
    """What a step takes at each k that was timed, up to a factor that all of them share."""
    return {
        one.k: one.tokens_per_step / one.tokens_per_second
        for one in outlook
        if one.timed
        and one.tokens_per_second is not None
        and one.tokens_per_second > 0
        and _SHORTEST_S < one.tokens_per_step / one.tokens_per_second < 1 / _SHORTEST_S
    }


def _gain(evidence: Evidence, k: int, now: int, seconds: dict[int, float]) -> Estimate:
    total = evidence.span.comparable().total

    def count_committed(depth: int, shift: float) -> float:
        tokens = 1.0
        for position in range(min(depth, len(total.drafted_per_position))):
            had = total.drafted_per_position[position]
            rate = total.accepted_per_position[position] / had if had else 0.0
            tokens += min(1.0, max(0.0, rate + shift))
        return tokens

    trials = evidence.spread.trials(total)
    low, high = trials.limits(CONFIDENCE)
    ends = (0.0, high - trials.rate, low - trials.rate)  # more accepted speaks for the larger k
    value, below, above = (
        count_committed(k, shift) / seconds[k] / (count_committed(now, shift) / seconds[now]) - 1
        for shift in ends
    )
    return Estimate(value, min(value, below) - _TIMING, max(value, above) + _TIMING)
