"""What the visits of a sweep say: the curve with its intervals, the optimum, a schedule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specdeck.engine.errors import LeftTurned, SpecdeckError
from specdeck.engine.metrics.draft_length import exceeds
from specdeck.engine.policy.intervals import Mean, Work, gain, rate, ratio
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import BOUNDS, bucket, first, span
from specdeck.engine.protocol.tuning import Interval
from specdeck.engine.sweep.ending import UNTOUCHED, Ending, knob_words
from specdeck.engine.sweep.plan import Plan

LEAST_S = 0.15
"""Seconds of work at one batch size, below which a visit says nothing about it."""
_STRAY = 0.1
"""The share of steps that may verify drafts of before a visit: at k = 0 there are no others."""
_LEAST_SUM_S = 1e-6
"""No engine makes a step in less, and a rate over next to nothing is beyond any number."""
SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"
"""Of vLLM's speculative_config."""
INTERRUPTED = "interrupted"

KnobValues = dict[str, int | str]
LeftOut = Literal["other_k"]
"""other_k: a part of its steps drafted another k, as of a breaker that was open for a while."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit of one k, as rates."""

    k: int
    tokens_per_second: float
    seconds_per_token: float
    """Of one request."""
    round: int
    batch: float | None = None
    """Mean number of running requests."""
    seconds: float = 1.0
    """Of work measured: what a visit counts for among others."""

    @property
    def tokens(self) -> float:
        """What was generated."""
        return self.tokens_per_second * self.seconds

    @property
    def waited(self) -> float:
        """Seconds times the requests that waited for the tokens."""
        return self.seconds_per_token * self.tokens


@dataclass(slots=True)
class StepSums:
    """Sums over steps."""

    seconds: float = 0.0
    committed: int = 0
    waited: float = 0.0
    """Seconds times the requests that waited for them."""

    def add(self, step: Step) -> None:
        """Counts a step whose time is known."""
        seconds = step.seconds or 0.0
        self.seconds += seconds
        self.committed += step.committed
        self.waited += seconds * step.requests

    def visit(self, k: int, round: int) -> Visit | None:
        """The sums as rates; None when nothing was generated."""
        if self.seconds < _LEAST_SUM_S or not self.committed:
            return None
        return Visit(
            k,
            self.committed / self.seconds,
            self.waited / self.committed,
            round,
            self.waited / self.seconds,
            self.seconds,
        )


@dataclass(slots=True)
class VisitSums:
    """One visit of one k, while it is measured.

    >>> sums = VisitSums(3, 0)
    >>> for number in range(2):
    ...     sums.add(Step(number, 0.0, 4, 16, 3, 4, 12, 6, seconds=0.01, committed=10))
    >>> found = sums.visit()
    >>> round(found.tokens_per_second), round(found.batch), sums.observed_k
    (1000, 4, 3.0)
    """

    k: int
    round: int
    work: StepSums = field(default_factory=StepSums)
    by_batch: dict[int, StepSums] = field(default_factory=dict)
    """By the bucket of `policy.table`."""
    steps: int = 0
    obeyed: int = 0
    """Steps for which the scheduler gave this k, by their word."""
    exceeding: int = 0
    """Steps whose drafts are longer than this k."""
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    left_out: LeftOut | None = None
    """Why it is no figure of this k; None where it is one."""

    def add(self, step: Step) -> None:
        """Counts a step; one that followed an idle engine took nobody knows how long."""
        if step.seconds is None:
            return
        self.steps += 1
        self.obeyed += step.k == self.k
        self.exceeding += bool(step.drafts) and exceeds(step.drafted / step.drafts, self.k)
        self.drafts += step.drafts
        self.drafted += step.drafted
        self.accepted += step.accepted
        self.work.add(step)
        self.by_batch.setdefault(bucket(step.requests), StepSums()).add(step)

    def add_newer(self, steps: Iterable[Step], since: int) -> int:
        """Counts those after step `since`, as the others are counted already or of before the
        visit; the number of the latest one."""
        for step in steps:
            if step.step > since:
                since = step.step
                self.add(step)
        return since

    @property
    def observed_k(self) -> float | None:
        """Draft tokens per draft; 0 when tokens came without drafts, None without tokens."""
        if self.drafts:
            return self.drafted / self.drafts
        return 0.0 if self.work.committed else None

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def is_contradicted(self) -> bool:
        """Whether the drafts themselves are longer than this k, whatever the steps say of it."""
        return exceeds(self.observed_k, self.k) and self.exceeding > _STRAY * self.steps

    @property
    def is_obeyed(self) -> bool:
        """Whether the engine drafted by this k: by the word of most steps, and by their drafts."""
        return self.obeyed >= self.steps / 2 and not self.is_contradicted

    @property
    def is_mixed(self) -> bool:
        """Whether more steps than a few strays were to draft another k, by their word."""
        return self.steps - self.obeyed > _STRAY * self.steps

    def visit(self) -> Visit | None:
        """The sums as rates; None when nothing was generated."""
        return self.work.visit(self.k, self.round)

    def as_json(self) -> dict[str, Any]:
        """One of the `visits` of `sweep --json`."""
        visit = self.visit()
        return {
            "round": self.round,
            "k": self.k,
            "seconds": round(self.work.seconds, 3),
            "steps": self.steps,
            "tokens": self.work.committed,
            "tokens_per_second": _round(visit.tokens_per_second if visit else None, 2),
            "ms_per_token": _round(visit.seconds_per_token * 1e3 if visit else None, 3),
            "batch": _round(visit.batch if visit else None, 2),
            "observed_k": _round(self.observed_k, 3),
            "acceptance_rate": _round(self.acceptance, 4),
            "left_out": self.left_out,
        }


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One k of the curve."""

    k: int
    tokens_per_second: Mean
    seconds_per_token: Mean

    def as_json(self) -> dict[str, Any]:
        """One point of the `curve` of `sweep --json`."""
        return {
            "k": self.k,
            "visits": self.tokens_per_second.blocks,
            "tokens_per_second": as_interval(self.tokens_per_second, 2),
            "ms_per_token": as_interval(self.seconds_per_token, 3, 1e3),
        }


@dataclass(frozen=True, slots=True)
class Optimum:
    """The k of most tokens per second, and how sure that is."""

    k: int
    over_next: Interval | None
    """Its gain over the second best; None when there is no other."""
    next_k: int | None
    over_target_only: Interval | None
    """Its gain over k = 0; None when k = 0 is the optimum or was not visited."""
    tied: tuple[int, ...]
    """Other k's that cannot be told from it."""
    told_apart: bool = True
    """Whether any other k is worse beyond the noise."""
    unknown: tuple[int, ...] = ()
    """Those of the tied ones that were not visited in two rounds: nothing is known of them."""

    @property
    def clear(self) -> bool:
        """Whether every other k is worse beyond the noise."""
        return not self.tied

    def as_json(self) -> dict[str, Any]:
        """The `optimum` of `sweep --json`."""
        return {
            "k": self.k,
            "clear": self.clear,
            "tied": list(self.tied),
            "next": self.next_k,
            "gain_over_next": as_interval(self.over_next, 4),
            "gain_over_target_only": as_interval(self.over_target_only, 4),
        }


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the visits say so far."""

    curve: tuple[SweepPoint, ...]
    optimum: Optimum | None
    """None until two rounds are complete for some k."""
    best: dict[int, int]
    """k by the bucket of batch sizes."""
    batch: float | None
    """Requests in a step, on average over all visits."""
    untold: frozenset[int] = frozenset()
    """Buckets of `best` at which no k was told apart from another: k there is chance."""

    @property
    def best_k(self) -> int | None:
        """The k of the optimum, where another was found to be worse; None where none is known."""
        best = self.optimum
        return best.k if best is not None and best.told_apart else None

    @property
    def finds_schedule(self) -> bool:
        """Whether k was told apart from another at any of the batch sizes."""
        return not self.untold.issuperset(self.best)

    @property
    def batch_sizes(self) -> tuple[str, ...]:
        """The batch sizes that `best` rests on, in words."""
        return tuple(span(number) for number in self.best)

    def schedule(self, largest: int) -> list[list[int]] | None:
        """k by batch size up to `largest`; None when no batch size was measured."""
        by_size = {first(number): k for number, k in self.best.items()}
        return tiers(by_size, largest) if by_size else None


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a sweep has come to, whole or not."""

    url: str
    plan: Plan
    model: str
    method: str | None
    visits: tuple[VisitSums, ...]
    analysis: Analysis
    max_num_seqs: int | None
    """The largest batch of the engine; None where it does not tell."""
    before: KnobValues
    """The knobs as they were found."""
    after: KnobValues | None
    """The knobs after all; None where they could not be read."""
    notices: tuple[str, ...] = ()
    error: SpecdeckError | None = None
    """Why it could not go on; None when it was completed or interrupted."""
    interrupted: bool = False
    """Whether whoever asked for it gave it up."""
    ending: Ending = UNTOUCHED
    """How the engine was left."""
    undo: str = ""
    """The command that makes the engine as it was found; empty where none can be given."""

    @property
    def complete(self) -> bool:
        """Whether every visit was made."""
        return len(self.visits) == self.plan.visits

    @property
    def counted(self) -> tuple[VisitSums, ...]:
        """The visits that are figures of their k."""
        return tuple(visit for visit in self.visits if visit.left_out is None)

    @property
    def stopped(self) -> str | None:
        """Why it is not whole, on one line; None when it is or is still under way."""
        if self.error is not None:
            return self.error.line()
        return INTERRUPTED if self.interrupted else None

    @property
    def restored(self) -> bool | None:
        """Whether the engine is as it was found; None when that is not known."""
        return None if self.after is None else self.after == self.before

    @property
    def failure(self) -> LeftTurned | None:
        """What whoever asked for it has to know and do, where the engine may be left turned."""
        if not self.ending.is_left_turned:
            return None
        back = f"`{self.undo}` makes it as it was found" if self.undo else None
        return LeftTurned(self.ending.line(self.after), remedy=back)

    @property
    def others(self) -> tuple[str, ...]:
        """What of the engine is otherwise than it was found, and not the sweep's doing."""
        ending, found = self.ending, list[str]()
        if ending.left in ("changed", "restarted") and self.after not in (None, self.before):
            whose = "somebody else has set" if ending.left == "changed" else "it came up with"
            back = f": `{self.undo}` makes it as it was found" if self.undo else ""
            found.append(f"{whose} {knob_words(self.after or {})}, which stays{back}")
        if ending.has_breaker_opened:
            found.append(f"the breaker has opened meanwhile: `{self.undo}`")
        return tuple(found)

    @property
    def schedule(self) -> list[list[int]] | None:
        """k by batch size, for the engine's largest batch; None when none was measured."""
        return self.analysis.schedule(self.max_num_seqs or BOUNDS[-1])

    def as_json(self) -> dict[str, Any]:
        """The document of `sweep --json`."""
        found, schedule = self.analysis, self.schedule
        return {
            "engine": self.url,
            "model": self.model,
            "method": self.method,
            "k": list(self.plan.ks),
            "rounds": self.plan.rounds,
            "complete": self.complete,
            "stopped": self.stopped,
            "batch": _round(found.batch, 2),
            "visits": [visit.as_json() for visit in self.visits],
            "curve": [point.as_json() for point in found.curve],
            "optimum": None if found.optimum is None else found.optimum.as_json(),
            "schedule": None if schedule is None else {SCHEDULE_KEY: schedule},
            "measured_batch_sizes": list(found.batch_sizes),
            "max_num_seqs": self.max_num_seqs,
            "before": self.before,
            "after": self.after,
            "restored": self.restored,
            "left": self.ending.left,
            "breaker": self.ending.breaker,
            "undo": self.undo,
            "notices": list(self.notices),
        }


def analyse(visits: Iterable[VisitSums], ks: Sequence[int]) -> Analysis:
    """Weighs the visits of a sweep over `ks`, without those that are left out."""
    every = [visit for visit in visits if visit.left_out is None]
    rates = [rates for visit in every if (rates := visit.visit()) is not None]
    seconds = sum(visit.work.seconds for visit in every)
    batch = sum(visit.work.waited for visit in every) / seconds if seconds else None
    sizes = optima_by_batch(every, ks)
    best = {size: at.k for size, at in sizes.items()}
    untold = frozenset(size for size, at in sizes.items() if not at.told_apart)
    return Analysis(curve(rates), optimum(rates, ks), best, batch, untold)


def curve(visits: Iterable[Visit]) -> tuple[SweepPoint, ...]:
    """The points of every k that was visited at least twice, by k.

    A rate is all tokens over all seconds: a short visit weighs less than a long one.
    """
    points = []
    for k, by_round in sorted(_by_k(visits).items()):
        of_k = by_round.values()
        tokens, seconds = [v.tokens for v in of_k], [v.seconds for v in of_k]
        speed = ratio(tokens, seconds)
        wait = ratio([v.waited for v in of_k], tokens)
        if speed and wait:
            points.append(SweepPoint(k, speed, wait))
    return tuple(points)


def optimum(visits: Iterable[Visit], ks: Iterable[int] = ()) -> Optimum | None:
    """The best k by the rates of `curve`; None until two rounds are complete for some k.

    `ks` are those to choose among, beside the ones that were visited: what was not visited in two
    rounds is as good as the best for all that is known.

    Gains are those between these rates; their noise is taken round by round, so that what
    the load did meanwhile cancels out.

    >>> visits = [Visit(k, rate + wave, 1 / rate, round)
    ...           for round, wave in enumerate((0, 40, -30, 10))
    ...           for k, rate in ((0, 100.0), (2, 150.0 + round), (3, 150.5))]
    >>> found = optimum(visits)
    >>> found.k, found.tied, found.over_target_only.sign
    (2, (3,), 1)
    """
    found = _by_k(visits)
    works: dict[int, dict[int, Work]] = {
        k: {number: (visit.tokens, visit.seconds) for number, visit in by_round.items()}
        for k, by_round in found.items()
        if len(by_round) >= 2
    }
    if not works:
        return None
    rates = {k: rate(work) for k, work in works.items()}
    ranked = sorted(rates, key=lambda k: (-rates[k], k))
    best = ranked[0]
    against = {k: gain(works[k], works[best]) for k in ranked[1:]}
    unknown = ({*ks} | found.keys()) - works.keys()
    level = {k for k, gain in against.items() if gain is None or gain.sign <= 0}
    following = ranked[1] if len(ranked) > 1 else None
    return Optimum(
        best,
        against[following] if following is not None else None,
        following,
        against.get(0),
        tuple(sorted(level | unknown)),
        told_apart=len(level) < len(against) or not (against or unknown),
        unknown=tuple(sorted(unknown)),
    )


def optima_by_batch(visits: Iterable[VisitSums], ks: Sequence[int]) -> dict[int, Optimum]:
    """The k of most tokens per second for every bucket that each of `ks` visited twice."""
    found: dict[int, list[Visit]] = {}
    for sums in visits:
        for size, work in sums.by_batch.items():
            visit = work.visit(sums.k, sums.round)
            if visit is not None and work.seconds >= LEAST_S:
                found.setdefault(size, []).append(visit)
    best = {}
    for size, of_size in sorted(found.items()):
        rounds = {k: len({visit.round for visit in of_size if visit.k == k}) for k in ks}
        at = optimum(of_size) if min(rounds.values(), default=0) >= 2 else None
        if at is not None:
            best[size] = at
    return best


def tiers(best: Mapping[int, int], max_num_seqs: int) -> list[list[int]]:
    """Tiers `[first, last, k]` that cover 1…max_num_seqs without a gap.

    `best` has the k for the batch sizes that were measured; one between two of them takes the
    k of the smaller, one outside them that of the nearest. Raises ValueError without any.

    >>> tiers({1: 5, 4: 5, 8: 3, 16: 0}, 32)
    [[1, 7, 5], [8, 15, 3], [16, 32, 0]]
    >>> tiers({8: 3}, 4)
    [[1, 4, 3]]
    """
    if not best:
        raise ValueError("no batch size was measured")
    if max_num_seqs < 1:
        raise ValueError(f"max_num_seqs={max_num_seqs} is less than 1")
    found: list[list[int]] = []
    for size, k in sorted(best.items()):
        begin = max(1, size) if found else 1
        if begin > max_num_seqs:
            break
        if found:
            found[-1][1] = begin - 1
            if found[-1][2] == k:
                continue
        found.append([begin, max_num_seqs, k])
    found[-1][1] = max_num_seqs
    return found


def schedule_line(schedule: Sequence[Sequence[int]]) -> str:
    """The schedule for a speculative_config in YAML or JSON.

    >>> schedule_line([[1, 7, 5], [8, 32, 3]])
    '"num_speculative_tokens_per_batch_size": [[1, 7, 5], [8, 32, 3]]'
    """
    return f'"{SCHEDULE_KEY}": {json.dumps(schedule)}'


def max_num_seqs(facts: Mapping[str, Any]) -> int | None:
    """The largest batch of the engine, from its `GET facts`; None where they do not say.

    >>> max_num_seqs({"facts": {"config": {"scheduler": {"max_num_seqs": 32}}}})
    32
    >>> max_num_seqs({}) is None
    True
    """
    found: Any = facts
    for name in ("facts", "config", "scheduler", "max_num_seqs"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) else None


def _by_k(visits: Iterable[Visit]) -> dict[int, dict[int, Visit]]:
    found: dict[int, dict[int, Visit]] = {}
    for visit in visits:
        found.setdefault(visit.k, {})[visit.round] = visit
    return found


def as_interval(
    found: Mean | Interval | None, digits: int, scale: float = 1.0
) -> dict[str, Any] | None:
    """A value and its 95 % interval, as `sweep --json` has them."""
    if found is None:
        return None
    value, low, high = (round(n * scale, digits) for n in (found.value, found.low, found.high))
    return {"value": value, "ci95": [low, high]}


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
