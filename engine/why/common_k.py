"""Spans and cohorts of different k, compared as far as all of them drafted.

What drafts bring grows with k: where it was lowered since the baseline, every cohort brings less
and nothing is wrong; where a policy moves it, requests that come in large batches bring less than
others; where an operator changed it within the look, those that came later do. So all are cut to
the positions that were drafted in nearly every draft, and what came while k was 0 is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.protocol.messages import LastChange
from specdeck.engine.protocol.methods import drafts_by_text
from specdeck.engine.protocol.tuning import KChange
from specdeck.engine.why.cohort_gaps import list_splits
from specdeck.engine.why.evidence import CohortSpan, Evidence, join_spans
from specdeck.engine.why.figures import LEAST_REQUESTS, own_tokens

_NEARLY_ALL: Final = 0.9
"""Of the drafts: a position that so many have a token at was drafted all the time."""
_LEAST_SHARE: Final = 0.2
"""Of the drafts of the cohort with the most: one with fewer does not tell what k was."""
_LEAST_WORTH: Final = 0.01
"""Of the tokens: a kind with fewer costs too little to be named."""
_OFF = 0.05
"""Of the rounds of requests that are drafted for: where more had no draft, k was 0 for a time."""
_AFTER_OFF_S: Final = 10.0
"""Seconds in which what ran while k was 0 still finishes."""
_LATE_S: Final = 10.0
"""For which the state and the moves may be read after the last look at requests."""
_CUT_SHORT: Final = 0.1
"""Of the tokens, drafted or put out."""
_CUT_OUT: Final = 0.02
"""Of the requests."""
_MOVERS: Final = ("k", "mode", "policy", "breaker")
"""Knobs that k goes by."""


def at_common_k(evidence: Evidence) -> Evidence:
    """`evidence` with all spans cut to the positions that the look and the baseline have drafted.

    Those of every cohort where k moved within the look. A drafter that goes by text drafts as far
    as it finds something: its spans stay as they are unless the longest drafts differ, and as no
    round without a draft tells whether k was 0, all that came in such seconds is left out.
    """
    baseline, state = evidence.baseline, evidence.state
    moves, turned = is_moved(evidence), _list_turned(evidence)
    by_text = drafts_by_text(None if state is None else state.method)
    if by_text:
        evidence = _leave_out_off(evidence)
    spans = [evidence.span] if baseline is None else [evidence.span, baseline.span]
    if _has_policy(evidence):
        depths = [depth for span in spans for depth in _list_depths(_list_sides(span))]
    else:
        longest = (max(_list_depths(_list_largest(span)), default=0) for span in spans)
        depths = [*longest, *turned]
    is_still = not moves and (baseline is None or (by_text and len(set(depths)) == 1))
    if not depths or 0 in depths or is_still:
        return evidence
    cut = partial(_cut, depth=min(depths), by_text=by_text, moves=moves)
    earlier = evidence.earlier
    return replace(
        evidence,
        span=cut(evidence.span),
        series=tuple(map(cut, evidence.series)),
        earlier=None if earlier is None else cut(earlier),
        baseline=baseline and replace(baseline, span=cut(baseline.span)),
    )


def is_cut_short(evidence: Evidence, alike: Evidence) -> bool:
    """Whether `alike`, its spans at a common k, lack so much that a cause may cost a good deal more
    than what is left tells: positions of drafts, rounds without any, or requests that had none."""
    whole, left = (one.span.comparable().total for one in (evidence, alike))
    return (
        left.drafted < (1 - _CUT_SHORT) * whole.drafted
        or own_tokens(left) < (1 - _CUT_SHORT) * own_tokens(whole)
        or left.requests < (1 - _CUT_OUT) * whole.requests
    )


def is_moved(evidence: Evidence) -> bool:
    """Whether requests of the look were drafted for at several k: by a policy, from one batch to
    the next, by a change within the look, or by a breaker that opened or closed in it."""
    return (
        _has_policy(evidence)
        or _has_breaker_moved(evidence)
        or _find_turn(evidence) is not None
        or bool(_list_moves(evidence))
    )


def _has_policy(evidence: Evidence) -> bool:
    """Whether a policy chose k at some time of the look: the k that is set was its ceiling then."""
    state, turn = evidence.state, _find_turn(evidence)
    policies = [
        None if state is None else state.policy,
        None if turn is None else turn.before.get("policy"),
    ]
    is_chosen = any(policy not in (None, "fixed") for policy in policies)
    return is_chosen or any(move.who == "policy" for move in _list_moves(evidence))


def _list_moves(evidence: Evidence) -> list[KChange]:
    """What moved k within the look, of the last fifty moves."""
    tuning, start = evidence.tuning, evidence.span.start
    moves = () if tuning is None else tuning.changes
    end = _find_end(evidence)
    return [one for one in moves if start <= one.t <= end and one.before != one.after]


def _find_end(evidence: Evidence) -> float:
    """Unix time of the last move that may be of the look, seconds: moves and spans go by the
    engine's clock, and `t` by one that may be behind it."""
    return max(evidence.t, evidence.span.end + _LATE_S)


def _find_turn(evidence: Evidence) -> LastChange | None:
    """The last change, where it moved k within the look."""
    last = None if evidence.state is None else evidence.state.last_change
    if last is None or not evidence.span.start <= last.t <= _find_end(evidence):
        return None
    moves = any(last.before.get(name) != last.after.get(name) for name in _MOVERS)
    return last if moves else None


def _list_turned(evidence: Evidence) -> list[int]:
    """What k was before and after each change within the look, where no policy chooses it."""
    if _has_policy(evidence):
        return []
    turn = _find_turn(evidence)
    set_to = [] if turn is None else [turn.before.get("k"), turn.after.get("k")]
    moved_to = [k for move in _list_moves(evidence) for k in (move.before, move.after)]
    return [k for k in (*set_to, *moved_to) if k]


def _has_breaker_moved(evidence: Evidence) -> bool:
    """Whether the breaker, which is no change, had k at 0 for a part of the look."""
    breaker = None if evidence.tuning is None else evidence.tuning.breaker
    if breaker is None:
        return False
    has_opened = breaker.state != "closed" or breaker.reason is not None
    return has_opened and breaker.since_s < _find_end(evidence) - evidence.span.start


def _leave_out_off(evidence: Evidence) -> Evidence:
    """`evidence` without the pieces in which k was 0, as far as its moves tell."""
    off = _list_off(evidence)
    if not off:
        return evidence

    def is_drafted(piece: CohortSpan) -> bool:
        return all(piece.end <= start or piece.start >= end + _AFTER_OFF_S for start, end in off)

    kept = tuple(filter(is_drafted, evidence.series))
    left = join_spans(kept).cells if kept else {}
    return replace(evidence, span=replace(evidence.span, cells=left), series=kept)


def _list_off(evidence: Evidence) -> list[tuple[float, float]]:
    """From when to when k was 0 within the look, Unix seconds."""
    steps = [(one.t, one.before == 0, one.after == 0) for one in _list_moves(evidence)]
    turn = _find_turn(evidence)
    if turn is not None and turn.t not in (t for t, *_ in steps):
        steps.append((turn.t, _is_off(turn.before), _is_off(turn.after)))
    breaker = None if evidence.tuning is None else evidence.tuning.breaker
    if breaker is not None and breaker.state == "open" and _has_breaker_moved(evidence):
        steps.append((evidence.span.end - breaker.since_s, False, True))
    steps.sort()
    start, end = evidence.span.start, evidence.span.end
    found = [(start, steps[0][0])] if steps and steps[0][1] else []
    for n, (t, _, is_off) in enumerate(steps):
        if is_off:
            found.append((t, steps[n + 1][0] if n + 1 < len(steps) else end))
    return found


def _is_off(knobs: Mapping[str, Any]) -> bool:
    return (
        knobs.get("mode") == "target-only" or knobs.get("k") == 0 or knobs.get("breaker") == "open"
    )


def _list_sides(span: CohortSpan) -> list[CohortCounts]:
    """All that a kind of request and the others may be compared by, where they have drafts.

    Of kinds that could take a share of the speed that is worth a word.
    """
    comparable = span.comparable()
    least = max(1, _LEAST_WORTH * own_tokens(comparable.total))
    found = [comparable.total]
    for split in list_splits(comparable):
        found += [
            side
            for side in split.sum_sides(comparable)
            if side.requests >= LEAST_REQUESTS and own_tokens(side) >= least
        ]
    return found


def _list_largest(span: CohortSpan) -> list[CohortCounts]:
    """Of the cohorts with the most drafts."""
    cells = list(span.comparable().cells.values())
    most = max((counts.drafts for counts in cells), default=0)
    return [counts for counts in cells if counts.drafts and counts.drafts >= _LEAST_SHARE * most]


def _list_depths(kinds: Iterable[CohortCounts]) -> list[int]:
    """The positions that nearly every draft has had a token at, by kind; none without drafts.

    What keeps those of one short, as a grammar does, is none of k's doing: where no policy chooses
    k the longest ones tell of it.
    """
    found = []
    for counts in kinds:
        first, *_ = counts.drafted_per_position or (0,)
        if first:
            had = [each >= _NEARLY_ALL * first for each in counts.drafted_per_position]
            found.append(had.index(False) if False in had else len(had))
    return found


def _cut(span: CohortSpan, *, depth: int, by_text: bool, moves: bool) -> CohortSpan:
    """What the drafts of a span would have brought, had they ended at `depth`.

    Without the requests that had no draft at all, where k was 0 for a time, as it may have been
    wherever it `moves`.
    """
    kept = span.cells
    if not by_text and (moves or _was_off(span)):
        kept = {cohort: counts for cohort, counts in kept.items() if counts.drafts}
    cells = {cohort: _cut_counts(counts, depth, by_text) for cohort, counts in kept.items()}
    return CohortSpan(span.start, span.end, span.k_max, cells)


def _was_off(span: CohortSpan) -> bool:
    """Whether k was 0 for a time: kinds of requests that are drafted for had rounds without."""
    drafted = [counts for counts in span.comparable().cells.values() if counts.drafts]
    rounds = sum(_count_rounds(counts) for counts in drafted)
    return rounds - sum(counts.drafts for counts in drafted) > _OFF * rounds


def _count_rounds(counts: CohortCounts) -> int:
    """What came after each request's first token, in steps."""
    return max(0, own_tokens(counts) - counts.accepted)


def _cut_counts(counts: CohortCounts, depth: int, by_text: bool) -> CohortCounts:
    """Each draft with the token that follows it.

    What came without a draft came while k was 0, unless nothing was ever drafted for such
    requests, or the drafter goes `by_text` and has found nothing.

    >>> counts = CohortCounts(2, 9, 142, 0, 50, (50, 50), (40, 20))
    >>> [_cut_counts(counts, 1, by_text).output_tokens for by_text in (True, False)]
    [122, 92]
    """
    drafted, accepted = (
        (*row[:depth], *[0] * (len(row) - depth))
        for row in (counts.drafted_per_position, counts.accepted_per_position)
    )
    rounds = _count_rounds(counts)
    if counts.drafts and not by_text:
        rounds = min(rounds, counts.drafts)
    return replace(
        counts,
        output_tokens=counts.requests + rounds + sum(accepted),
        drafted_per_position=drafted,
        accepted_per_position=accepted,
    )
