"""Two spans of different k, compared as far as both drafted.

What drafts bring grows with k: where it was lowered since the baseline, as a policy does whenever
the batch grows, every cohort brings less and nothing is wrong. So both are cut to the positions
that both drafted in nearly every draft.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import own_tokens

_NEARLY_ALL: Final = 0.9
"""Of the drafts: a position that so many have a token at was drafted all the time."""
_LEAST_SHARE: Final = 0.5
"""Of the drafts of the cohort with the most: one with fewer does not tell what k was."""


def at_common_k(evidence: Evidence) -> Evidence:
    """`evidence` with all spans cut to the positions that the look and the baseline have drafted.

    As it is where these are the same, k stands still and nobody but an operator moves it.
    """
    if evidence.baseline is None:
        return evidence
    depths = find_depth(evidence.baseline.span), find_depth(evidence.span)
    moves = evidence.state is not None and evidence.state.policy != "fixed"
    if 0 in depths or (depths[0] == depths[1] and not moves):
        return evidence
    depth = min(depths)
    earlier = evidence.earlier
    return replace(
        evidence,
        span=cut(evidence.span, depth),
        series=tuple(cut(span, depth) for span in evidence.series),
        earlier=None if earlier is None else cut(earlier, depth),
        baseline=replace(evidence.baseline, span=cut(evidence.baseline.span, depth)),
    )


def find_depth(span: CohortSpan) -> int:
    """The positions that nearly every draft has had a token at; 0 where nothing was drafted.

    By the cohort with the longest drafts: what keeps those of others short, as a grammar does, is
    none of k's doing.
    """
    cells = list(span.comparable().cells.values())
    most = max((counts.drafts for counts in cells), default=0)
    deepest = 0
    for counts in cells:
        first, *_ = counts.drafted_per_position or (0,)
        if first and counts.drafts >= _LEAST_SHARE * most:
            had = [each >= _NEARLY_ALL * first for each in counts.drafted_per_position]
            deepest = max(deepest, had.index(False) if False in had else len(had))
    return deepest


def cut(span: CohortSpan, depth: int) -> CohortSpan:
    """What the drafts of a span would have brought, had they ended at `depth`."""
    cells = {cohort: _cut_counts(counts, depth) for cohort, counts in span.cells.items()}
    return CohortSpan(span.start, span.end, span.k_max, cells)


def _cut_counts(counts: CohortCounts, depth: int) -> CohortCounts:
    """Each draft with the token that follows it, and nothing that came without one.

    >>> _cut_counts(CohortCounts(2, 9, 142, 0, 50, (50, 50), (40, 20)), 1)
    CohortCounts(requests=2, prompt_tokens=9, output_tokens=92, preemptions=0, drafts=50, \
drafted_per_position=(50, 0), accepted_per_position=(40, 0))
    """
    drafted, accepted = (
        (*row[:depth], *[0] * (len(row) - depth))
        for row in (counts.drafted_per_position, counts.accepted_per_position)
    )
    own = min(own_tokens(counts), counts.drafts + sum(accepted))
    return replace(
        counts,
        output_tokens=counts.requests + own,
        drafted_per_position=drafted,
        accepted_per_position=accepted,
    )
