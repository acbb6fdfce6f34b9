"""A mean that moved because the mix moved, told apart from cohorts that moved.

Kitagawa's decomposition: every cohort's share of the drafts is held while its acceptance moves, and
its acceptance while the share moves. Both add up to what the mean did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from specdeck.engine.protocol.cohorts import DIMENSIONS
from specdeck.engine.why.causes import MATERIAL, Cause, Figure, Finding, Group, RuledOut, Untold
from specdeck.engine.why.cohort_gaps import cost_of
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import LEAST_REQUESTS, Estimate

_NAME: Final = "traffic_mix"
_BROUGHT = ("prompt", "cached", "adapter", "structured", "temperature")
"""Dimensions that a request brings along."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of acceptance since the baseline."""

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
    """How acceptance moved, and by what; None where one of them drafted nothing.

    A cohort that one of them lacks is taken to have had the same acceptance.
    """
    before, after = (_by_brought(span) for span in (then, now))
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


def _by_brought(span: CohortSpan) -> dict[tuple[str, ...], tuple[int, int]]:
    """Drafted and accepted tokens by what requests bring along; what came of them is left out."""
    found: dict[tuple[str, ...], tuple[int, int]] = {}
    for cohort, counts in span.cells.items():
        if counts.drafted:
            key = tuple(getattr(cohort, by) for by in _BROUGHT)
            drafted, accepted = found.get(key, (0, 0))
            found[key] = drafted + counts.drafted, accepted + counts.accepted
    return found


def judge_mix(evidence: Evidence, *, is_named: bool) -> Finding:
    """Whether acceptance fell as there are other requests; with `is_named` a cause says so."""
    baseline = evidence.baseline
    if baseline is None:
        return Untold(_NAME, "no_baseline")
    now, then = evidence.span.drafting(), baseline.span.drafting()
    if min(now.total.requests, then.total.requests) < LEAST_REQUESTS:
        return Untold(_NAME, "few_requests")
    moved = split_move(then, now)
    if moved is None:
        return Untold(_NAME, "no_drafts")
    depth = now.total.drafted / max(1, now.total.drafts)
    # What the shares of the drafts may be off by chance, each request being of one cohort.
    margin = 1 / min(now.total.requests, then.total.requests) ** 0.5 * _SPREAD
    fall = Estimate(-moved.mix, -moved.mix - margin, -moved.mix + margin)
    cost = cost_of(now, fall, depth)
    if fall.low <= 0 or fall.value < _LEAST_FALL or cost.value < MATERIAL or is_named:
        return RuledOut(_NAME, cost)
    figure = Figure("acceptance", moved.after, moved.before)
    return Cause(_NAME, figure, fall, cost, _grown(then, now), "more")


_SPREAD = 0.75
"""Three standard errors of a share, times how far cohorts lie apart at most: a half."""
_LEAST_FALL = 0.05


def _grown(then: CohortSpan, now: CohortSpan) -> Group | None:
    """The word whose requests pulled the mean down most by being more, or fewer."""
    worst: tuple[float, Group] | None = None
    mean = now.total.accepted / max(1, now.total.drafted)
    for by in DIMENSIONS:
        if by not in _BROUGHT:
            continue
        for word in {getattr(cohort, by) for cohort in now.cells}:
            (has, takes), (had, _) = (_side(span, by, word) for span in (now, then))
            grew = has / now.total.drafted - had / then.total.drafted
            pull = grew * (mean - takes / has) if has else 0.0
            if worst is None or pull > worst[0]:
                worst = pull, Group(by, (word,))
    return worst[1] if worst is not None and worst[0] > 0 else None


def _side(span: CohortSpan, by: str, word: str) -> tuple[int, int]:
    some = [counts for cohort, counts in span.cells.items() if getattr(cohort, by) == word]
    return sum(c.drafted for c in some), sum(c.accepted for c in some)
