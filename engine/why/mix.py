"""A mean that moved because the mix moved, told apart from cohorts that moved.

Kitagawa's decomposition: every cohort's share of the tokens is held while what drafts bring it
moves, and that while the share moves. Both add up to what the mean did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from specdeck.engine.protocol.cohorts import (
    BROUGHT,
    DIMENSIONS,
    OTHER,
    Cohort,
    CohortCounts,
    sum_counts,
)
from specdeck.engine.why.causes import MATERIAL, Cause, Figure, Finding, Group, Untold, dismiss
from specdeck.engine.why.cohort_gaps import cost_of
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import LEAST_REQUESTS, Estimate, own_tokens

_NAME: Final = "traffic_mix"


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of the share of the output that drafts bring, since the baseline."""

    before: float
    after: float
    mix: float
    """Of the difference, what other requests account for."""
    cohorts: float
    """What the same requests account for."""

    def as_json(self) -> dict[str, Any]:
        """For a script."""
        names = ("before", "after", "mix", "cohorts")
        return {name: round(getattr(self, name), 5) for name in names}


def split_move(then: CohortSpan, now: CohortSpan) -> Moved | None:
    """How it moved, and by what; None where one of them has no tokens.

    Of comparable spans, whose cohorts are told apart by what requests bring along. A cohort that
    one of them lacks is taken to have been the same.
    """
    before, after = (_list_tokens(span) for span in (then, now))
    whole_before, whole_after = (sum(d for d, _ in each.values()) for each in (before, after))
    if not whole_before or not whole_after:
        return None
    mix = cohorts = 0.0
    for key in before.keys() | after.keys():
        had, took = before.get(key, (0, 0))
        has, takes = after.get(key, (0, 0))
        rate_before = took / had if had else takes / has
        rate_after = takes / has if has else took / had
        share_before, share_after = had / whole_before, has / whole_after
        mix += (share_after - share_before) * (rate_before + rate_after) / 2
        cohorts += (share_before + share_after) / 2 * (rate_after - rate_before)
    return Moved(
        sum(t for _, t in before.values()) / whole_before,
        sum(t for _, t in after.values()) / whole_after,
        mix, cohorts,
    )  # fmt: skip


def _list_tokens(span: CohortSpan) -> dict[Cohort, tuple[int, int]]:
    """Tokens of each cohort, and those from drafts."""
    return {cohort: (own_tokens(counts), counts.accepted) for cohort, counts in span.cells.items()}


def judge_mix(evidence: Evidence, *, is_named: bool) -> Finding:
    """Whether drafts bring less as there are other requests; with `is_named` a cause says so."""
    baseline = evidence.baseline
    if baseline is None:
        return Untold(_NAME, "no_baseline")
    now, then = evidence.span.comparable(), baseline.span.comparable()
    if min(now.total.requests, then.total.requests) < LEAST_REQUESTS:
        return Untold(_NAME, "few_requests")
    moved = split_move(then, now)
    if moved is None:
        return Untold(_NAME, "no_drafts")
    # What the shares may be off by chance, each request being of one cohort.
    margin = 1 / min(now.total.requests, then.total.requests) ** 0.5 * _SPREAD
    fall = Estimate(-moved.mix, -moved.mix - margin, -moved.mix + margin)
    cost = cost_of(now, fall, 1.0)
    if is_named:
        return Untold(_NAME, "named_by_cause", cost)
    # Its interval is wide, as two looks are compared: one that reaches next to nothing names none.
    if fall.low <= 0 or fall.value < _LEAST_FALL or cost.low < MATERIAL:
        return dismiss(_NAME, cost)
    figure = Figure("output_from_drafts", moved.after, moved.before)
    grown = _find_grown(then, now)
    was = grown is not None and _sum_word(then, grown.by, grown.words[0]).requests
    return Cause(_NAME, figure, fall, cost, grown, "more" if was else "unknown")


_SPREAD = 0.75
"""Three standard errors of a share, times how far cohorts lie apart at most: a half."""
_LEAST_FALL = 0.05


def _find_grown(then: CohortSpan, now: CohortSpan) -> Group | None:
    """The word whose requests pulled the mean down most by being more than before.

    Its share of what `split_move` says of the mix, beside the mean of both times: where all
    requests are of one word now, the mean of now is theirs.
    """
    worst: tuple[float, Group] | None = None
    mean = (_rate(then.total) + _rate(now.total)) / 2
    for by in DIMENSIONS:
        if by not in BROUGHT:
            continue
        for word in sorted({getattr(cohort, by) for cohort in now.cells} - {OTHER}):
            has, had = (_sum_word(span, by, word) for span in (now, then))
            grew = own_tokens(has) / own_tokens(now.total) - own_tokens(had) / own_tokens(
                then.total
            )
            rates = [_rate(side) for side in (has, had) if own_tokens(side)]
            pull = grew * (mean - sum(rates) / len(rates)) if rates else 0.0
            if grew > 0 and pull > 0 and (worst is None or pull > worst[0]):
                worst = pull, Group(by, (word,))
    return None if worst is None else worst[1]


def _rate(counts: CohortCounts) -> float:
    """The share of the output that drafts bring."""
    return counts.accepted / max(1, own_tokens(counts))


def _sum_word(span: CohortSpan, by: str, word: str) -> CohortCounts:
    some = (counts for cohort, counts in span.cells.items() if getattr(cohort, by) == word)
    return sum_counts(some, span.k_max)
