"""The case for a cause: which requests fell and which did not, how suddenly, and what stayed as it
was; plain figures, for whoever was not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from specdeck.engine.incident.acceptance_move import AcceptanceMove, compare_acceptance
from specdeck.engine.incident.kinds import ASKED, Kinds
from specdeck.engine.incident.onset import Onset
from specdeck.engine.protocol.cohorts import Cohort, CohortCounts, sum_counts
from specdeck.engine.why.causes import Cause, Group
from specdeck.engine.why.cohort_gaps import prompt_order
from specdeck.engine.why.evidence import CohortSpan
from specdeck.engine.why.figures import LEAST_REQUESTS

Pattern = Literal["rejected", "decayed", "weaker"]
"""What became of the drafts: the first token of nearly each is rejected, at once; acceptance fell
over some time; it is lower, and not by as much."""

_LOST: Final = 0.35
"""Of the first drafted tokens that were accepted: with less left drafts are as good as none."""


@dataclass(frozen=True, slots=True)
class Side:
    """The same requests before and after; None is none of them."""

    before: CohortCounts | None
    after: CohortCounts | None

    @property
    def is_known(self) -> bool:
        """Whether there were enough of them at both times."""
        return all(
            one is not None and one.requests >= LEAST_REQUESTS and one.drafted > 0
            for one in (self.before, self.after)
        )

    @property
    def move(self) -> AcceptanceMove | None:
        """How their acceptance moved; None where nothing was drafted for one side."""
        return compare_acceptance(self.before, self.after)

    @property
    def held(self) -> bool | None:
        """Whether they are accepted about as before; None where that is not known."""
        move = self.move
        return move.has_held if move is not None and self.is_known else None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"before": _describe(self.before), "after": _describe(self.after)}


@dataclass(frozen=True, slots=True)
class Contrast:
    """Requests that are alike in another word: those of the group, and the others."""

    by: str
    word: str
    inside: Side
    outside: Side


@dataclass(frozen=True, slots=True)
class Case:
    """What speaks for a cause that is about a group of requests."""

    group: Group
    is_longest: bool
    """Whether no prompts were seen that are longer than the group's."""
    is_shortest: bool
    inside: Side
    """The requests of the group."""
    outside: Side
    """All others."""
    share_before: float | None
    """Of finished requests that were of the group."""
    share_after: float | None
    contrasts: tuple[Contrast, ...]
    since: float | None
    """When acceptance fell, Unix seconds."""
    onset: Onset | None
    """How sudden that was."""
    pattern: Pattern | None
    """None where too little is known to tell."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "cohort": self.group.as_json(),
            "inside": self.inside.as_json(),
            "outside": self.outside.as_json(),
            "share_before": self.share_before,
            "share_after": self.share_after,
            "since": self.since,
            "fall_s": None if self.onset is None else self.onset.seconds,
            "pattern": self.pattern,
            "contrasts": [
                {"by": one.by, "word": one.word, "inside": one.inside.as_json(),
                 "outside": one.outside.as_json()}
                for one in self.contrasts
            ],
        }  # fmt: skip


def make_case(cause: Cause, kinds: Kinds, since: float | None, onset: Onset | None) -> Case | None:
    """The case for `cause`; None for one that is about no kind of request, or of an unknown before.

    `since` and `onset` are those of the fall around which `kinds` are told.
    """
    group, before, after = cause.group, kinds.before, kinds.after
    if group is None or before is None or after is None:
        return None
    spans = (before, after)

    def has(cohort: Cohort) -> bool:
        return getattr(cohort, group.by) in group.words

    inside, outside = _side(spans, has), _side(spans, lambda one: not has(one))
    words = {getattr(cohort, group.by) for span in spans for cohort in span.cells}
    order = {word: prompt_order(word) for word in words}
    ends = [order[word] for word in group.words if word in order]
    return Case(
        group,
        is_longest=group.by == "prompt" and bool(ends) and max(ends) == max(order.values()),
        is_shortest=group.by == "prompt" and bool(ends) and min(ends) == min(order.values()),
        inside=inside,
        outside=outside,
        share_before=_share(inside.before, before),
        share_after=_share(inside.after, after),
        contrasts=tuple(_list_contrasts(spans, group.by, has)),
        since=since,
        onset=onset,
        pattern=_find_pattern(cause, inside, onset),
    )


def _list_contrasts(
    spans: Sequence[CohortSpan], by: str, has: Callable[[Cohort], bool]
) -> Iterator[Contrast]:
    """The other words that requests of the group had, with those of the same word beside them."""
    for other in ASKED:
        words = {getattr(cohort, other) for span in spans for cohort in span.cells}
        if other == by or len(words) < 2:
            continue
        for word in sorted(words):
            alike = [_keep(span, other, word) for span in spans]
            inside, outside = _side(alike, has), _side(alike, lambda one: not has(one))
            if inside.is_known:
                yield Contrast(other, word, inside, outside)


def _keep(span: CohortSpan, by: str, word: str) -> CohortSpan:
    """The cells with one word of one dimension alone."""
    cells = {cohort: counts for cohort, counts in span.cells.items() if getattr(cohort, by) == word}
    return replace(span, cells=cells)


def _side(spans: Sequence[CohortSpan], has: Callable[[Cohort], bool]) -> Side:
    before, after = (
        [counts for cohort, counts in span.cells.items() if has(cohort)] for span in spans
    )
    return Side(
        sum_counts(before, spans[0].k_max) if before else None,
        sum_counts(after, spans[1].k_max) if after else None,
    )


def _share(counts: CohortCounts | None, span: CohortSpan) -> float | None:
    whole = span.total.requests
    return None if not whole else (0 if counts is None else counts.requests) / whole


def _find_pattern(cause: Cause, inside: Side, onset: Onset | None) -> Pattern | None:
    if cause.name == "cohort_drift" or (onset is not None and not onset.is_sudden):
        return "decayed"
    was, now = first_accepted(inside.before), first_accepted(inside.after)
    if not inside.is_known or was is None or now is None or inside.held is not False:
        return None
    return "rejected" if now < _LOST * was else "weaker"


def first_accepted(counts: CohortCounts | None) -> float | None:
    """Of first drafted tokens, the share that was accepted; None when there were none."""
    return None if counts is None else counts.accepted_of_first(1)


def _describe(counts: CohortCounts | None) -> Mapping[str, Any] | None:
    if counts is None:
        return None
    return {
        "requests": counts.requests, "drafted": counts.drafted, "accepted": counts.accepted,
        "acceptance": counts.acceptance, "first_accepted": first_accepted(counts),
    }  # fmt: skip
