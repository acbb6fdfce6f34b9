"""An engine without speculation beside a sweep: what soft k = 0 costs more, and what k is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specdeck.engine.policy.intervals import Work, gain
from specdeck.engine.protocol.tuning import Interval
from specdeck.engine.sweep.analysis import Visit, VisitSums, as_interval

SURE = 0.1
"""The widest half of an interval that a figure is told the engine with: ten points."""
ALIKE = 0.1
"""The share by which the batches of both engines may differ before it is said."""


@dataclass(frozen=True, slots=True)
class HardComparison:
    """The visits of an engine without speculation, held against those of the swept one."""

    tokens_per_second: float | None
    """Without speculation; None before the first visit."""
    seconds_per_token: float | None
    """A request's wait for one token, there."""
    visits: int
    soft_cost: Interval | None
    """What a step at soft k = 0 takes longer, as a share; None of fewer than two rounds."""
    best_k: int | None
    """Of the sweep; None where none is told apart."""
    over_hard: Interval | None
    """The speed of the sweep's best k above no speculation, as a share."""
    soft_batch: float | None
    """Requests in a step of the swept engine at k = 0, on average."""
    hard_batch: float | None

    @property
    def known_cost(self) -> float | None:
        """`soft_cost` where its interval is narrow enough to count on; None otherwise."""
        found = self.soft_cost
        if found is None or max(found.high - found.value, found.value - found.low) > SURE:
            return None
        return round(found.value, 4)

    @property
    def differs(self) -> bool:
        """Whether the batches were not alike, so that somebody else's traffic was measured."""
        soft, hard = self.soft_batch, self.hard_batch
        return bool(soft and hard and abs(soft / hard - 1) > ALIKE)

    def as_json(self) -> dict[str, Any]:
        """The `hard` of `sweep --hard --json`."""
        speed, wait = self.tokens_per_second, self.seconds_per_token
        return {
            "visits": self.visits,
            "tokens_per_second": None if speed is None else round(speed, 2),
            "ms_per_token": None if wait is None else round(wait * 1e3, 3),
            "soft_cost": as_interval(self.soft_cost, 4),
            "best_k": self.best_k,
            "gain_over_hard": as_interval(self.over_hard, 4),
            "batch": {
                "soft": None if self.soft_batch is None else round(self.soft_batch, 2),
                "hard": None if self.hard_batch is None else round(self.hard_batch, 2),
            },
        }


def compare(
    soft: Iterable[VisitSums], hard: Iterable[VisitSums], *, best_k: int | None
) -> HardComparison:
    """Holds the visits of a sweep against those of the same rounds without speculation.

    Rates are tokens over seconds of work, so for the same tokens soft k = 0 takes as much
    longer as the other rate is higher.

    >>> from specdeck.engine.policy.step import Step
    >>> def visit(k, round, rate):
    ...     sums = VisitSums(k, round)
    ...     sums.add(Step(1, 0.0, 4, 4, k, 0, 0, 0, seconds=1.0, committed=rate))
    ...     return sums
    >>> drift = (0, 40, -20)
    >>> soft = [visit(0, n, 400 + d) for n, d in enumerate(drift)]
    >>> hard = [visit(0, n, 440 + d) for n, d in enumerate(drift)]
    >>> round(compare(soft, hard, best_k=0).soft_cost.value, 3)
    0.098
    """
    swept = [visit for sums in soft if (visit := sums.visit()) is not None]
    alone = [visit for sums in hard if (visit := sums.visit()) is not None]
    without = _by_round(alone)
    zero = _by_round(visit for visit in swept if visit.k == 0)
    best = _by_round(visit for visit in swept if visit.k == best_k)
    seconds, tokens = sum(v.seconds for v in alone), sum(v.tokens for v in alone)
    return HardComparison(
        tokens / seconds if seconds else None,
        sum(v.waited for v in alone) / tokens if tokens else None,
        len(alone),
        gain(zero, without),
        best_k,
        gain(without, best) if best_k is not None else None,
        _batch(visit for visit in swept if visit.k == 0),
        _batch(alone),
    )


def _by_round(visits: Iterable[Visit]) -> Mapping[int, Work]:
    return {visit.round: (visit.tokens, visit.seconds) for visit in visits}


def _batch(visits: Iterable[Visit]) -> float | None:
    """Requests in a step, on average over the time."""
    every = list(visits)
    seconds = sum(visit.seconds for visit in every)
    return sum(visit.waited for visit in every) / seconds if seconds else None
