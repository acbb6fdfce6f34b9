"""What is known of an engine when it is asked why: counts by cohort, steps, settings, and before.

Plain values: whoever judges them needs no engine. `gather` asks one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import sub
from typing import Any

from specdeck.engine.errors import NotAnEngine
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.cohorts import (
    BROUGHT,
    DIMENSIONS,
    MOST_CELLS,
    OTHER,
    Cohort,
    CohortCounts,
    Cohorts,
    no_counts,
    sum_counts,
)
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.protocol.requests import RequestLine
from specdeck.engine.protocol.tuning import Tuning
from specdeck.engine.why.cpu_wait import CpuWait
from specdeck.engine.why.figures import Spread, own_tokens
from specdeck.engine.why.step_profile import StepProfile


@dataclass(frozen=True)  # without slots: `_alike` is kept beside the fields
class CohortSpan:
    """What requests that finished between two moments did, by cohort."""

    start: float
    """Unix time, seconds."""
    end: float
    k_max: int
    cells: Mapping[Cohort, CohortCounts]
    """Only those in which a request finished."""

    @property
    def total(self) -> CohortCounts:
        """All of them together."""
        return sum_counts(self.cells.values(), self.k_max)

    def comparable(self) -> CohortSpan:
        """The same without requests that have a k of their own, or no token for a draft to bring.

        By what requests bring along, and not by what came of them: the other dimensions have the
        word `OTHER`. The `_MOST_KINDS` with the most tokens, which is more than an engine tells
        apart; each split is held against each of them. Empty where nothing was drafted at all.
        """
        return self._alike

    @cached_property
    def _alike(self) -> CohortSpan:
        """Every test asks for it, and thousands of cells take some ten milliseconds."""
        alike: dict[Cohort, list[CohortCounts]] = {}
        for cohort, counts in self.cells.items():
            if cohort.pinned != "yes" and own_tokens(counts) > 0:
                kind = replace(cohort, **dict.fromkeys(_CAME_OF_IT, OTHER))
                alike.setdefault(kind, []).append(counts)
        kept = {kind: sum_counts(each, self.k_max) for kind, each in alike.items()}
        if len(kept) > _MOST_KINDS:
            largest = sorted(kept, key=lambda kind: own_tokens(kept[kind]), reverse=True)
            kept = {kind: kept[kind] for kind in largest[:_MOST_KINDS]}
        if not any(counts.drafts for counts in kept.values()):
            kept = {}
        return CohortSpan(self.start, self.end, self.k_max, kept)


_CAME_OF_IT = tuple(name for name in DIMENSIONS if name not in BROUGHT)
_MOST_KINDS = 2 * MOST_CELLS


def span_between(older: Cohorts, newer: Cohorts) -> CohortSpan | None:
    """What finished between two replies; None across a restart.

    A cell that was folded meanwhile says nothing: its counts went over to words of single
    dimensions.
    """
    if older.instance != newer.instance or older.k_max != newer.k_max or newer.t <= older.t:
        return None
    before = {cell.cohort: cell.counts for cell in older.cells}
    cells: dict[Cohort, CohortCounts] = {}
    for cell in newer.cells:
        counts = subtract(cell.counts, before.get(cell.cohort, no_counts(newer.k_max)))
        if counts.requests:
            cells[cell.cohort] = counts
    return CohortSpan(older.t, newer.t, newer.k_max, cells)


def span_since_start(cohorts: Cohorts, started: float) -> CohortSpan:
    """What finished since the plugin took hold, at Unix time `started`, and was not folded."""
    cells = {cell.cohort: cell.counts for cell in cohorts.cells if cell.counts.requests}
    return CohortSpan(min(started, cohorts.t), cohorts.t, cohorts.k_max, cells)


def refuse_strange(cohorts: Cohorts) -> None:
    """Raises NotAnEngine for counts that no plugin tells: below zero, or of several lengths."""
    k = cohorts.k_max
    for cell in cohorts.cells:
        counts = cell.counts
        by_position = (counts.drafted_per_position, counts.accepted_per_position)
        plain = (counts.requests, counts.prompt_tokens, counts.output_tokens, counts.preemptions,
                 counts.drafts)  # fmt: skip
        figures = (*plain, *by_position[0], *by_position[1])
        if {len(row) for row in by_position} != {k} or not all(
            0 <= figure <= _MOST for figure in figures
        ):
            raise NotAnEngine("the counts of its cohorts do not go together")


_MOST = 2**53


def subtract(newer: CohortCounts, older: CohortCounts) -> CohortCounts:
    """What was counted in between; `newer` itself where it began anew."""
    if newer.requests < older.requests or newer.drafts < older.drafts:
        return newer
    return CohortCounts(
        newer.requests - older.requests,
        max(0, newer.prompt_tokens - older.prompt_tokens),
        max(0, newer.output_tokens - older.output_tokens),
        max(0, newer.preemptions - older.preemptions),
        newer.drafts - older.drafts,
        _rises(newer.drafted_per_position, older.drafted_per_position),
        _rises(newer.accepted_per_position, older.accepted_per_position),
    )


def _rises(newer: Sequence[int], older: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(0, rise) for rise in map(sub, newer, older))


def join_spans(spans: Sequence[CohortSpan]) -> CohortSpan:
    """Several spans of one engine as one; raises ValueError of none."""
    if not spans:
        raise ValueError("no span to join")
    cells: dict[Cohort, list[CohortCounts]] = {}
    for span in spans:
        for cohort, counts in span.cells.items():
            cells.setdefault(cohort, []).append(counts)
    k_max = spans[0].k_max
    joined = {cohort: sum_counts(each, k_max) for cohort, each in cells.items()}
    return CohortSpan(spans[0].start, spans[-1].end, k_max, joined)


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """What tells which draft serves which target: digests, never contents."""

    target: str | None = None
    """Of the target's weights."""
    draft: str | None = None
    tokenizer: str | None = None
    """Of the target's vocabulary."""
    draft_tokenizer: str | None = None
    """Of the draft's own, where it has one."""


NO_FACTS = DraftFacts()
UNKNOWN_SPREAD = Spread()
NO_STEPS = StepProfile()


@dataclass(frozen=True, slots=True)
class Baseline:
    """How the engine was when it was well, or an hour ago."""

    source: str
    """`file`, `history` or `life`: a saved file, the black box, the engine's life before the
    look."""
    span: CohortSpan
    spread: Spread = UNKNOWN_SPREAD
    steps: StepProfile = NO_STEPS
    facts: DraftFacts = NO_FACTS
    url: str | None = None
    waits: tuple[CpuWait, ...] = ()
    """How long threads waited for a CPU; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known; what is not known is None or empty."""

    url: str
    t: float
    """Unix time of the last look, seconds."""
    span: CohortSpan
    """What is judged."""
    series: tuple[CohortSpan, ...] = ()
    """The same by pieces, oldest first: what moved, moved in one of them."""
    earlier: CohortSpan | None = None
    """The same life of the engine before `span`; None where `span` is all of it."""
    spread: Spread = UNKNOWN_SPREAD
    steps: tuple[Step, ...] = ()
    """Of the scheduler, oldest first, up to `t`."""
    step_means: tuple[Step, ...] = ()
    """Means of many steps between two readings, where single ones were not recorded."""
    waits: tuple[CpuWait, ...] = ()
    """How long threads waited for a CPU, piece by piece; empty where that is not known."""
    preemptions: int | None = None
    """In `span`, by vLLM's counter; None where it was not read at both ends."""
    preempted_context: float | None = None
    """Tokens that a preempted request had, on average; None where none was seen."""
    state: EngineState | None = None
    model: str | None = None
    """The name under which it serves, as its metrics have it."""
    tuning: Tuning | None = None
    facts: DraftFacts = NO_FACTS
    baseline: Baseline | None = None
    since_start: bool = False
    """Whether `span` is the engine's whole life."""
    missing: tuple[tuple[str, str], ...] = field(default=())
    """What could not be read, and why: `steps`, `tuning`, `facts`, …"""

    @property
    def is_idle(self) -> bool:
        """Whether no request ran in the span: the steps that an engine remembers are older then."""
        state = self.state
        if state is None or state.running or state.waiting:
            return False
        return not any(counts.requests for counts in self.span.cells.values())


def read_spread(lines: Iterable[RequestLine]) -> Spread:
    """How much requests of one kind differ in what drafts bring, as tokens of one trial.

    The variance of sums over requests within kinds, over that of independent tokens; with a margin
    for how few requests it is learnt from. A long request weighs as much as it has tokens.
    """
    kinds: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for line in lines:
        tokens = line.output_tokens - 1
        if 0 < tokens < _MOST_OUTPUT and line.ended is not None and line.k is None:
            kind = (
                line.prompt_tokens.bit_length() // 2, line.cached, line.adapter, line.structured,
                line.temperature,
            )  # fmt: skip
            kinds.setdefault(kind, []).append((tokens, min(tokens, max(0, line.accepted))))
    seen = expected = squares = free = 0.0
    freedom = whole = requests = 0
    for alike in kinds.values():
        tokens = sum(each for each, _ in alike)
        rate = sum(met for _, met in alike) / tokens
        if len(alike) < 2 or not 0 < rate < 1:
            continue
        seen += sum((met - rate * each) ** 2 for each, met in alike)
        expected += tokens * rate * (1 - rate)
        square = sum(each**2 for each, _ in alike)
        squares += square
        # The rate leans to the longest requests, which lie the nearer to it for that.
        cube = sum(each**3 for each, _ in alike)
        free += square - 2 * cube / tokens + square**2 / tokens**2
        freedom += len(alike) - 1
        whole, requests = whole + tokens, requests + len(alike)
    if freedom < _LEAST_FREEDOM or free <= 0:
        return Spread()
    factor = seen / expected * squares / free * (1 + _MARGIN * (2 / freedom) ** 0.5)
    # No request counts as less than one trial, be all of its tokens alike.
    return Spread(min(max(1.0, factor), squares / whole), requests)


_LEAST_FREEDOM = 12
_MOST_OUTPUT = 10**8
"""Tokens of a request that are believed."""
_MARGIN = 1.5
"""Standard errors that a spread is taken to be above what was seen."""


def read_draft_facts(reply: Mapping[str, Any] | None) -> DraftFacts:
    """What `GET facts` says of target and draft; nothing where it does not say."""
    facts = reply.get("facts") if isinstance(reply, Mapping) else None
    models = facts.get("model") if isinstance(facts, Mapping) else None
    if not isinstance(models, Mapping):
        return DraftFacts()

    def weights(role: str) -> str | None:
        model = models.get(role)
        return _digest(model.get("weights")) if isinstance(model, Mapping) else None

    return DraftFacts(
        weights("target"), weights("draft"), _vocabulary(models.get("tokenizer")),
        _vocabulary(models.get("draft_tokenizer")),
    )  # fmt: skip


def _vocabulary(found: object) -> str | None:
    if not isinstance(found, Mapping):
        return None
    # A chat template or a special token says nothing of which token has which id.
    kept = {name: found[name] for name in ("vocab", "merges", "model") if found.get(name)}
    return _digest(kept or found)


def _digest(found: object) -> str | None:
    """One line of digests; None where one of them could not be read."""
    if not isinstance(found, Mapping) or not found or not all(found.values()):
        return None
    return " ".join(f"{value}"[:16] for _, value in sorted(found.items()))[:200]
