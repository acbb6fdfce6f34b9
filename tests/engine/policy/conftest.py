"""An engine whose cost and acceptance are known, so that the best k is known too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp
from random import Random

import pytest

from specdeck.engine.policy.cost import CostModel
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step

K_MAX = 5
TEXTS = {
    "predictable": (0.90, 0.88, 0.86, 0.85, 0.85),
    "middling": (0.65, 0.52, 0.60, 0.60, 0.60),
    "hard": (0.05, 0.05, 0.05, 0.05, 0.05),
    "half": (0.45, 0.3, 0.1, 0.1, 0.1),
    "loop": (1.0, 1.0, 1.0, 1.0, 1.0),
}


@dataclass
class Simulated:
    """Steps by a cost model and conditional acceptance, from one seed."""

    random: Random = field(default_factory=lambda: Random(7))
    cost: CostModel = field(default_factory=lambda: CostModel(0.010, 0.0002, 0.0012, 0.00015))
    noise: float = 0.05
    t: float = 100.0
    verified: int = 0
    slowdown: float = 1.0

    def step(self, text: str, requests: int, k: int) -> Step:
        accepted = [0] * K_MAX
        for _ in range(requests):
            for position in range(self.verified):
                if self.random.random() >= TEXTS[text][position]:
                    break
                accepted[position] += 1
        verified, self.verified = self.verified, k
        passes = self.cost.per_k * k + self.cost.per_token * requests * verified
        seconds = self.cost.seconds(requests, 0) + passes
        seconds *= self.slowdown * exp(self.random.gauss(0, self.noise))
        self.t += seconds
        drafts = requests if verified else 0
        return Step(
            step=0,
            t=self.t,
            requests=requests,
            tokens=requests + drafts * verified,
            k=k,
            drafts=drafts,
            drafted=drafts * verified,
            accepted=sum(accepted),
            seconds=seconds,
            committed=requests + sum(accepted),
            accepted_per_position=tuple(accepted),
            verified=verified,
            settled=verified == k,
        )

    def rate(self, text: str, requests: int, k: int) -> float:
        """The true tokens per second of all requests."""
        tokens = reached = 1.0
        for share in TEXTS[text][:k]:
            reached *= share
            tokens += reached
        return requests * tokens / self.cost.seconds(requests, k)

    def best(self, text: str, requests: int) -> int:
        """The k that an oracle would choose."""
        return max(range(K_MAX + 1), key=lambda k: self.rate(text, requests, k))

    def drive(
        self,
        runner: PolicyRunner,
        text: str,
        requests: int,
        seconds: float,
        watch: Callable[[Step], None] = lambda _: None,
    ) -> float:
        """Runs `runner` for so long; committed tokens per second."""
        began, tokens = self.t, 0
        while self.t < began + seconds:
            seen = self.step(text, requests, runner.decision.k(requests))
            runner.choose(seen)
            watch(seen)
            tokens += seen.committed
        return tokens / (self.t - began)


@pytest.fixture
def engine() -> Simulated:
    return Simulated()
