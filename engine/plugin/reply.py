"""What the plugin answers: a refusal, and `GET tuning`, put together of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specdeck.engine.policy.table import bucket
from specdeck.engine.protocol.messages import Capability
from specdeck.engine.protocol.tuning import (
    BreakerTuning,
    HardBaseline,
    LedgerTuning,
    Outlook,
    SavedTime,
    Tuning,
)

if TYPE_CHECKING:
    from specdeck.engine.plugin.steering import Steering
    from specdeck.engine.policy.runner import PolicyRunner

_HOUR_S = 3600.0
_DAY_S = 86400.0
_TIMED_STEPS = 8


class Refusal(Exception):
    """Why a request is turned down, with the HTTP status that says so."""

    def __init__(self, status: int, code: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.remedy = remedy

    def as_json(self) -> dict[str, Any]:
        """The body of the reply."""
        return {"error": {"code": self.code, "message": str(self), "remedy": self.remedy}}


def inability(capability: Capability) -> Refusal:
    """501: this engine cannot."""
    return Refusal(501, capability.name, capability.reason or "not available", capability.remedy)


def conflict(version: int, who: str) -> Refusal:
    """409: someone else was first."""
    message = f"the engine is at version {version}, changed by {who}"
    return Refusal(409, "version", message, "read its state and try again")


def nonsense(message: str) -> Refusal:
    """400: not a change at all."""
    return Refusal(400, "invalid", message)


def describe_tuning(steering: Steering, *, by: str | None, instance: str, t: float) -> Tuning:
    """What is known of the policy and the breaker; trial and exact traffic are the caller's."""
    runner, engine = steering.runner, steering.engine
    common = Tuning(
        instance=instance,
        version=0,
        t=t,
        policy=steering.knobs.policy,
        reason=runner.reason_in_words if runner else None,
        k=group_schedule(engine.schedule()),
        parameters=steering.catalogue.as_list(steering.configured),
        breaker=BreakerTuning("closed", automatic=False),
    )
    if runner is None:
        return common
    drafts, (running, _) = engine.tally().drafted_per_position, engine.requests()
    breaker = runner.breaker.view(automatic=runner.automatic and runner.guarded, by=by)
    return replace(
        common,
        breaker=breaker,
        ledger=LedgerTuning(
            _saving(runner, _HOUR_S),
            _saving(runner, _DAY_S),
            "soft" if runner.soft_cost is None else "hard",
        ),
        baseline=_baseline(runner, running, gain=breaker.gain),
        curve=runner.curve.points(),
        outlook=_outlook(runner, running, drafts),
        acceptance=_acceptance(runner, drafts),
        changes=tuple(move.as_change() for move in runner.moves),
    )


def group_schedule(schedule: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """k by number of requests of a list indexed by it, as vLLM's scheduler holds it.

    >>> group_schedule([5, 5, 5, 2])
    ((1, 2, 5), (3, 3, 2))
    """
    found: list[tuple[int, int, int]] = []
    for requests, k in list(enumerate(schedule))[1:]:
        if found and found[-1][2] == k:
            found[-1] = (found[-1][0], requests, k)
        else:
            found.append((requests, requests, k))
    return tuple(found)


def _saving(runner: PolicyRunner, seconds: float) -> SavedTime | None:
    """Engine time saved in the last `seconds`."""
    found = runner.ledger.over(seconds, now=runner.estimates.now, soft_cost=runner.soft_cost)
    return found if found.speculating_s or found.target_only_s else None


def _baseline(runner: PolicyRunner, requests: int, *, gain: float | None) -> HardBaseline:
    """An engine without speculation; `gain` is the breaker's, against soft k = 0."""
    cost = runner.soft_cost
    if cost is None:
        return HardBaseline()
    seconds = runner.estimates.times.seconds(bucket(requests), 0)
    return HardBaseline(
        cost,
        (1 + cost) * max(requests, 1) / seconds if seconds else None,
        None if gain is None else (1 + gain) / (1 + cost) - 1,
    )


def _acceptance(runner: PolicyRunner, drafts: Sequence[int]) -> tuple[float, ...] | None:
    """Shares accepted up to each position, of those that any draft had."""
    had = sum(1 for count in drafts if count)
    return tuple(runner.estimates.acceptance.survival[:had]) if had else None


def _outlook(runner: PolicyRunner, requests: int, drafts: Sequence[int]) -> tuple[Outlook, ...]:
    """What every k is expected to give to so many requests; empty before any step."""
    known, here = runner.estimates, bucket(requests)
    had = sum(1 for count in drafts if count)
    found = []
    for k, tokens in enumerate(known.acceptance.expected):
        seconds = known.times.seconds(here, k)
        rate = None if not seconds else max(requests, 1) * tokens / seconds
        timed = known.times.steps(here, k) >= _TIMED_STEPS
        found.append(Outlook(k, tokens, rate, timed, k > had))
    return tuple(found) if any(each.tokens_per_second for each in found) else ()
