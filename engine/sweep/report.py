"""What a sweep came to: the curve, the optimum and a schedule, as JSON has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specdeck.engine.policy.batches import BOUNDS, span
from specdeck.engine.sweep.checks import max_num_seqs
from specdeck.engine.sweep.runner import Sweep
from specdeck.engine.tuning import schedule
from specdeck.engine.tuning.intervals import Change, Mean
from specdeck.engine.tuning.stay import Stay, best_by_batch, starts
from specdeck.engine.tuning.sweep import Optimum, Point, Visit, curve, optimum


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the visits say so far."""

    curve: tuple[Point, ...]
    optimum: Optimum | None
    """None until two rounds are complete for some k."""
    best: dict[int, int]
    """k by the bucket of batch sizes."""
    batch: float | None
    """Requests in a step, on average over all visits."""

    @property
    def measured_at(self) -> tuple[str, ...]:
        """The batch sizes that `best` rests on, in words."""
        return tuple(span(number) for number in self.best)

    def schedule(self, largest: int) -> list[list[int]] | None:
        """k by batch size up to `largest`; None when no batch size was measured."""
        return schedule.tiers(starts(self.best), largest) if self.best else None


def outcome(stays: Iterable[Stay], ks: tuple[int, ...]) -> Outcome:
    """The visits, weighed."""
    every = list(stays)
    visits = [visit for stay in every if (visit := stay.visit()) is not None]
    seconds = sum(stay.work.seconds for stay in every)
    batch = sum(stay.work.waited for stay in every) / seconds if seconds else None
    return Outcome(curve(visits), optimum(visits), best_by_batch(every, ks), batch)


def as_json(sweep: Sweep, url: str, *, stopped: str | None = None) -> dict[str, Any]:
    """The document of `sweep --json`; `stopped` says why a sweep is not whole."""
    ks = sweep.plan.ks
    found = outcome(sweep.stays, ks)
    largest = max_num_seqs(sweep.facts)
    tiers = found.schedule(largest or BOUNDS[-1])
    state = sweep.found
    return {
        "engine": url,
        "model": state.model if state else None,
        "method": state.method if state else None,
        "k": list(ks),
        "rounds": sweep.plan.rounds,
        "complete": len(sweep.stays) == sweep.plan.visits,
        "stopped": stopped,
        "batch": _rounded(found.batch, 2),
        "visits": [_visit(stay) for stay in sweep.stays],
        "curve": [_point(point) for point in found.curve],
        "optimum": _optimum(found.optimum),
        "schedule": None if tiers is None else {schedule.KEY: tiers},
        "measured_batch_sizes": list(found.measured_at),
        "max_num_seqs": largest,
        "before": sweep.before,
        "after": sweep.after,
        "restored": sweep.restored,
        "notices": sweep.notices,
    }


def _visit(stay: Stay) -> dict[str, Any]:
    visit: Visit | None = stay.visit()
    return {
        "round": stay.round,
        "k": stay.k,
        "seconds": round(stay.work.seconds, 3),
        "steps": stay.steps,
        "tokens": stay.work.committed,
        "tokens_per_second": _rounded(visit.tokens_per_second if visit else None, 2),
        "ms_per_token": _rounded(visit.seconds_per_token * 1e3 if visit else None, 3),
        "batch": _rounded(visit.batch if visit else None, 2),
        "observed_k": _rounded(stay.observed_k, 3),
        "acceptance_rate": _rounded(stay.acceptance, 4),
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "k": point.k,
        "visits": point.tokens_per_second.blocks,
        "tokens_per_second": _mean(point.tokens_per_second, 1.0, 2),
        "ms_per_token": _mean(point.seconds_per_token, 1e3, 3),
    }


def _mean(found: Mean, scale: float, digits: int) -> dict[str, Any]:
    low, high = (round(each * scale, digits) for each in (found.low, found.high))
    return {"value": round(found.value * scale, digits), "ci95": [low, high]}


def _optimum(found: Optimum | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "k": found.k,
        "clear": found.clear,
        "tied": list(found.tied),
        "next": found.next_k,
        "gain_over_next": _change(found.over_next),
        "gain_over_target_only": _change(found.over_target_only),
    }


def _change(found: Change | None) -> dict[str, Any] | None:
    if found is None:
        return None
    ci95 = [round(found.low, 4), round(found.high, 4)]
    return {"value": round(found.value, 4), "ci95": ci95}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
