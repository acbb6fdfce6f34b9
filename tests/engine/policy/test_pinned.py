"""Requests with a k of their own choose for nobody else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.engine.policy.conftest import Simulated

from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.parameters import BreakerParameters, GoodputParameters
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step


@dataclass
class Mixed(Simulated):
    """Some requests of each step are pinned to k = 0."""

    pinned: int = 0
    gone: int = 0
    """Of those, the ones whose clients hang up in the midst of each step."""
    prompt: int = 0
    """Tokens that one more request's prompt has computed in each step."""

    def step(self, text: str, requests: int, k: int) -> Step:
        free = requests - self.pinned
        seen = super().step(text, free, k)
        more = self.cost.seconds(requests, 0) - self.cost.seconds(free, 0)
        self.t += more
        return seen._replace(
            t=self.t,
            requests=requests,
            tokens=seen.tokens + self.pinned + self.prompt,
            drafts=seen.drafts if free else 0,
            seconds=(seen.seconds or 0.0) + more,
            committed=seen.committed + self.pinned - self.gone,
            absent=self.gone,
            pinned=self.pinned - self.gone,
            pinned_tokens=self.pinned - self.gone,
            prefill=self.prompt,
        )


def guarded(k: int | None) -> tuple[PolicyRunner, Breaker]:
    known = Estimates(5)
    breaker = Breaker(BreakerParameters(), known)
    policy = Goodput(GoodputParameters(), known, k=5) if k is None else Fixed(k, k_max=5)
    return PolicyRunner(policy, known, breaker=breaker), breaker


@pytest.mark.parametrize("gone", [0, 5, 8])
def test_pinned_requests_teach_nothing_of_acceptance(gone: int) -> None:
    alone, beside = Estimates(5), Estimates(5)
    for known, engine in ((alone, Simulated()), (beside, Mixed(pinned=8, gone=gone))):
        pinned = getattr(engine, "pinned", 0)
        for _ in range(400):
            known.add(engine.step("predictable", 2 + pinned, 5))
    assert beside.acceptance.survival == pytest.approx(alone.acceptance.survival)
    assert beside.acceptance.survival[4] > 0.3


@pytest.mark.parametrize("k", [5, None])
@pytest.mark.parametrize(("prompt", "gone"), [(0, 0), (64, 0), (0, 6)])
def test_pinned_requests_open_no_breaker_and_move_no_k(
    k: int | None, prompt: int, gone: int
) -> None:
    engine = Mixed(pinned=10, prompt=prompt, gone=gone)
    runner, breaker = guarded(k)
    chosen: list[int] = []
    engine.drive(runner, "predictable", 12, 60, lambda seen: chosen.append(seen.k))
    assert breaker.state == "closed"
    assert sum(chosen[200:]) / len(chosen[200:]) > 4.5


def test_pinned_requests_alone_open_no_breaker() -> None:
    engine = Mixed(pinned=12)
    runner, breaker = guarded(5)
    engine.drive(runner, "predictable", 12, 60)
    assert breaker.state == "closed"


def test_a_collapse_beside_pinned_requests_opens_the_breaker_all_the_same() -> None:
    engine = Mixed(pinned=4)
    runner, breaker = guarded(5)
    engine.drive(runner, "hard", 12, 30)
    assert breaker.state != "closed"
