"""Spans and cohorts of different k, compared as far as all of them drafted.

What drafts bring grows with k: where it was lowered since the baseline, every cohort brings less
and nothing is wrong; where a policy moves it, requests that come in large batches bring less than
others. So all are cut to the positions that were drafted in nearly every draft.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.protocol.methods import drafts_by_text
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import own_tokens

_NEARLY_ALL: Final = 0.9
"""Of the drafts: a position that so many have a token at was drafted all the time."""
_LEAST_SHARE: Final = 0.2
"""Of the drafts of the cohort with the most: one with fewer does not tell what k was."""


def at_common_k(evidence: Evidence) -> Evidence:
    """`evidence` with all spans cut to the positions that the look and the baseline have drafted.

    Those of every cohort where a policy moves k; else as it is where they are the same.
    """
    baseline, state = evidence.baseline, evidence.state
    moves = state is not None and state.policy != "fixed"
    spans = [evidence.span] if baseline is None else [evidence.span, baseline.span]
    depths = [depth for span in spans for depth in _list_depths(span)]
    if not moves:
        depths = [max(_list_depths(span), default=0) for span in spans]
    if not depths or 0 in depths or (len(set(depths)) == 1 and not moves):
        return evidence
    depth, earlier = min(depths), evidence.earlier
    # What came without a draft tells of a drafter that finds none, or of times at k = 0.
    keeps = drafts_by_text(None if state is None else state.method)
    return replace(
        evidence,
        span=_cut(evidence.span, depth, keeps),
        series=tuple(_cut(span, depth, keeps) for span in evidence.series),
        earlier=None if earlier is None else _cut(earlier, depth, keeps),
        baseline=baseline and replace(baseline, span=_cut(baseline.span, depth, keeps)),
    )


def _list_depths(span: CohortSpan) -> list[int]:
    """The positions that nearly every draft has had a token at, by cohort; none without drafts.

    Of the cohorts with the most drafts. What keeps those of one short, as a grammar does, is none
    of k's doing: where k stands still the longest ones tell of it.
    """
    cells = list(span.comparable().cells.values())
    most = max((counts.drafts for counts in cells), default=0)
    found = []
    for counts in cells:
        first, *_ = counts.drafted_per_position or (0,)
        if first and counts.drafts >= _LEAST_SHARE * most:
            had = [each >= _NEARLY_ALL * first for each in counts.drafted_per_position]
            found.append(had.index(False) if False in had else len(had))
    return found


def _cut(span: CohortSpan, depth: int, keeps: bool) -> CohortSpan:
    """What the drafts of a span would have brought, had they ended at `depth`."""
    cells = {cohort: _cut_counts(counts, depth, keeps) for cohort, counts in span.cells.items()}
    return CohortSpan(span.start, span.end, span.k_max, cells)


def _cut_counts(counts: CohortCounts, depth: int, keeps: bool) -> CohortCounts:
    """Each draft with the token that follows it; what came without one where that `keeps`.

    >>> counts = CohortCounts(2, 9, 142, 0, 50, (50, 50), (40, 20))
    >>> _cut_counts(counts, 1, False).output_tokens, _cut_counts(counts, 1, True).output_tokens
    (92, 122)
    """
    drafted, accepted = (
        (*row[:depth], *[0] * (len(row) - depth))
        for row in (counts.drafted_per_position, counts.accepted_per_position)
    )
    left_out = counts.accepted - sum(accepted)
    own = max(0, own_tokens(counts) - left_out)
    if not keeps:
        own = min(own, counts.drafts + sum(accepted))
    return replace(
        counts,
        output_tokens=counts.requests + own,
        drafted_per_position=drafted,
        accepted_per_position=accepted,
    )
