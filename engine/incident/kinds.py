"""Who suffers: what each kind of request did before a moment and after it, and why, as far as the
recording tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from specdeck.engine.blackbox.history import History
from specdeck.engine.incident.acceptance_move import AcceptanceMove, compare_acceptance
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.cohorts import BROUGHT, DIMENSIONS, CohortCounts, Cohorts, sum_counts
from specdeck.engine.protocol.tuning import Tuning
from specdeck.engine.why.evidence import (
    CohortSpan,
    read_draft_facts,
    span_between,
    span_since_start,
)
from specdeck.engine.why.figures import LEAST_REQUESTS
from specdeck.engine.why.past import (
    Heard,
    is_of_another,
    make_baseline,
    read_model,
    recall_looks,
)
from specdeck.engine.why.ranking import Diagnosis, diagnose

ASKED: Final = (*BROUGHT, "pinned")
"""What a request brings along, and that it was pinned; the rest comes of it."""
_MOST_LOOKS: Final = 60
_LEAST_LOOKS: Final = 2
_FEWEST_DRAFTED: Final = 100
"""Tokens on each side below which a share says nothing."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests with one word of one dimension, before and after; None is none of them."""

    by: str
    word: str
    before: CohortCounts | None
    after: CohortCounts | None

    @property
    def few(self) -> bool:
        """Whether one side has too few requests to tell anything."""
        sides = (self.before, self.after)
        return any(one is None or one.requests < LEAST_REQUESTS for one in sides)

    @property
    def move(self) -> AcceptanceMove | None:
        """How its acceptance moved; None where nothing was drafted for one side."""
        return compare_acceptance(self.before, self.after)

    @property
    def loss(self) -> float | None:
        """By how much its acceptance fell; None where one side is too small to tell."""
        move = self.move
        if move is None or self.before is None or self.after is None or self.few:
            return None
        least = min(self.before.drafted, self.after.drafted)
        return None if least < _FEWEST_DRAFTED else move.before - move.after

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "by": self.by, "word": self.word,
            "before": _as_json(self.before), "after": _as_json(self.after),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kinds:
    """Finished requests before and after a moment."""

    before: CohortSpan | None
    after: CohortSpan | None

    @property
    def are_apart(self) -> bool:
        """Whether both are known and are other requests: where nobody looked after the moment the
        later ones are those of the engine's whole life."""
        before, after = self.before, self.after
        return before is not None and after is not None and after.end > before.end

    def list(self) -> tuple[Kind, ...]:
        """By dimension, and in it by what the words lost, most first; what does not tell last."""
        was, now = _by_word(self.before), _by_word(self.after)
        found = [
            Kind(by, word, was.get((by, word)), now.get((by, word)))
            for by, word in dict.fromkeys((*was, *now))
        ]
        order = {name: number for number, name in enumerate(DIMENSIONS)}

        def place(kind: Kind) -> tuple[int, bool, float, str]:
            return order[kind.by], kind.loss is None, -(kind.loss or 0.0), kind.word

        return tuple(sorted(found, key=place))

    def as_json(self) -> dict[str, Any]:
        """Plain values: the stretches, and every kind in both."""
        return {
            "before": _describe_span(self.before),
            "after": _describe_span(self.after),
            "kinds": [one.as_json() for one in self.list()],
        }


def compare_kinds(
    history: History, start: float, pivot: float, end: float, live: Cohorts | None
) -> tuple[Kinds, tuple[Cohorts, ...]]:
    """What finished from `start` to `pivot`, and from there to `end`; and the looks of the latter.

    Replies are recorded once a minute: the one before the moment ends the first stretch, and the
    first one after it begins the second, so that neither has work of the other.
    """
    times = [t for t, _, _ in history.cohort_steps(start, end)]
    before = _span(
        [found for t in _thin([t for t in times if t <= pivot])
         if (found := history.cohorts_at(t)) is not None]
    )  # fmt: skip
    later = [t for t in times if t > pivot]
    if len(later) < _LEAST_LOOKS and (earlier := [t for t in times if t <= pivot]):
        later = [earlier[-1], *later]
    looks = [found for t in _thin(later) if (found := history.cohorts_at(t)) is not None]
    if live is not None and (not looks or looks[-1].t < live.t):
        looks.append(live)
    looks = [one for one in looks if one.instance == looks[-1].instance]
    return Kinds(before, _span(looks, alone=True)), tuple(looks)


def _span(replies: Sequence[Cohorts], *, alone: bool = False) -> CohortSpan | None:
    """What finished between the first and the last reply of the last life among them.

    `alone` has a single reply stand for its life: it is an engine that was restarted.
    """
    if not replies:
        return None
    last = replies[-1]
    first = next(one for one in replies if one.instance == last.instance)
    if first is last:
        return span_since_start(last, last.t) if alone else None
    return span_between(first, last)


def explain(
    kinds: Kinds,
    looks: Sequence[Cohorts],
    history: History,
    end: float,
    *,
    tuning: Mapping[str, Any] | None,
    facts: Mapping[str, Any] | None,
    heard: Heard,
) -> Diagnosis | None:
    """The causes of what changed, ranked, out of what is recorded up to `end`, Unix seconds, and
    what was heard beside it; None where no finished requests are known.

    Raises SpecdeckError where they are not enough.
    """
    if not looks:
        return None
    try:
        known = None if tuning is None else Tuning.from_json(tuning)
    except WrongType:
        known = None
    before, baseline = kinds.before, None
    model = read_model(history, end) if heard.sample is None else heard.sample.model
    if before is not None and before.total.drafts and not is_of_another(history, before, model):
        baseline = make_baseline(history, before, (before.start, before.end))
    heard = replace(heard, tuning=known, facts=read_draft_facts(facts))
    since = looks[0].t if before is None else before.start
    return diagnose(recall_looks(history, looks, since, end, baseline=baseline, heard=heard))


def _thin(times: Sequence[float]) -> list[float]:
    """The first, the last and as many in between as are worth their reading."""
    if len(times) <= _MOST_LOOKS:
        return list(times)
    step = -(-len(times) // _MOST_LOOKS)
    return [*times[:-1:step], times[-1]]


def _by_word(span: CohortSpan | None) -> dict[tuple[str, str], CohortCounts]:
    if span is None:
        return {}
    found: dict[tuple[str, str], list[CohortCounts]] = {}
    for cohort, counts in span.cells.items():
        for pair in zip(DIMENSIONS, astuple(cohort), strict=True):
            found.setdefault(pair, []).append(counts)
    return {pair: sum_counts(each, span.k_max) for pair, each in found.items()}


def _describe_span(span: CohortSpan | None) -> dict[str, Any] | None:
    if span is None:
        return None
    return {
        "start": span.start,
        "end": span.end,
        "total": _as_json(span.total),
        "cells": [
            {"cohort": dict(zip(DIMENSIONS, astuple(cohort), strict=True)), **_figures(counts)}
            for cohort, counts in sorted(span.cells.items(), key=lambda one: astuple(one[0]))
        ],
    }


def _as_json(counts: CohortCounts | None) -> dict[str, Any] | None:
    return None if counts is None else _figures(counts)


def _figures(counts: CohortCounts) -> dict[str, Any]:
    return {
        "requests": counts.requests, "prompt_tokens": counts.prompt_tokens,
        "output_tokens": counts.output_tokens, "preemptions": counts.preemptions,
        "drafts": counts.drafts, "drafted": counts.drafted, "accepted": counts.accepted,
        "acceptance": counts.acceptance,
        "drafted_per_position": counts.drafted_per_position,
        "accepted_per_position": counts.accepted_per_position,
    }  # fmt: skip
