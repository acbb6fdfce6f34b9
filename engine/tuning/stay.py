"""What the engine's steps came to while k stood still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from specdeck.engine.control.protocol import Step
from specdeck.engine.policy.batches import bucket, first
from specdeck.engine.tuning.sweep import Visit, optimum

LEAST_S = 0.15
"""Seconds of work at one batch size, below which a visit says nothing about it."""


@dataclass(slots=True)
class Work:
    """Sums over steps."""

    seconds: float = 0.0
    committed: int = 0
    waited: float = 0.0
    """Seconds times the requests that waited for them."""

    def add(self, step: Step) -> None:
        """Counts a step whose time is known."""
        seconds = step.seconds or 0.0
        self.seconds += seconds
        self.committed += step.committed or 0
        self.waited += seconds * step.requests

    def visit(self, k: int, round: int) -> Visit | None:
        """The sums as rates; None when nothing was generated."""
        if not self.seconds or not self.committed:
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
class Stay:
    """One visit of one k, while it is measured.

    >>> stay = Stay(3, 0)
    >>> for number in range(2):
    ...     stay.add(Step(number, 0.0, 4, 16, 3, 4, 12, 6, seconds=0.01, committed=10))
    >>> found = stay.visit()
    >>> round(found.tokens_per_second), round(found.batch), stay.observed_k
    (1000, 4, 3.0)
    """

    k: int
    round: int
    work: Work = field(default_factory=Work)
    by_batch: dict[int, Work] = field(default_factory=dict)
    """By the bucket of `policy.batches`."""
    steps: int = 0
    obeyed: int = 0
    """Steps for which the scheduler gave this k."""
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0

    def add(self, step: Step) -> None:
        """Counts a step; one that followed an idle engine took nobody knows how long."""
        if step.seconds is None or step.committed is None:
            return
        self.steps += 1
        self.obeyed += step.k == self.k
        self.drafts += step.drafts
        self.drafted += step.drafted
        self.accepted += step.accepted
        self.work.add(step)
        self.by_batch.setdefault(bucket(step.requests), Work()).add(step)

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

    def visit(self) -> Visit | None:
        """The stay as rates; None when nothing was generated."""
        return self.work.visit(self.k, self.round)


def best_by_batch(stays: Iterable[Stay], ks: Sequence[int]) -> dict[int, int]:
    """The k of most tokens per second for every bucket that each of `ks` visited twice."""
    found: dict[int, list[Visit]] = {}
    for stay in stays:
        for size, work in stay.by_batch.items():
            visit = work.visit(stay.k, stay.round)
            if visit is not None and work.seconds >= LEAST_S:
                found.setdefault(size, []).append(visit)
    best = {}
    for size, visits in sorted(found.items()):
        rounds = {k: len({visit.round for visit in visits if visit.k == k}) for k in ks}
        at = optimum(visits) if min(rounds.values(), default=0) >= 2 else None
        if at is not None:
            best[size] = at.k
    return best


def starts(best: Mapping[int, int]) -> dict[int, int]:
    """`best` by the smallest batch size of each bucket.

    >>> starts({0: 5, 4: 3})
    {1: 5, 5: 3}
    """
    return {first(number): k for number, k in best.items()}
