"""Steps made by a cost and acceptance model, for `benchmarks.policy_simulation --synthetic`."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp
from random import Random

from tests.support.recorded_steps import Cell, Pools

from specdeck.engine.policy.cost import CostModel

K_MAX = 5
SYNTHETIC = {
    "predictable": (0.90, 0.88, 0.86, 0.85, 0.85),
    "middling": (0.65, 0.52, 0.60, 0.60, 0.60),
    "hard": (0.12, 0.10, 0.10, 0.10, 0.10),
}
"""Conditional acceptance by position."""

COST = CostModel(base=0.010, per_request=0.0002, per_k=0.0012, per_token=0.00015)

NOISE, HICCUP, HICCUP_TIMES = 0.08, 0.01, 3.0


def make_pools(random: Random, batches: Iterable[int], count: int = 4000) -> Pools:
    """Pools from the model."""
    return {
        (text, requests): Cell(
            [COST.seconds(requests, k) for k in range(K_MAX + 1)],
            [_noise(random) for _ in range(count)],
            [_draw_accepted(random, shares, requests) for _ in range(count)],
        )
        for text, shares in SYNTHETIC.items()
        for requests in batches
    }


def _noise(random: Random) -> float:
    slow = HICCUP_TIMES if random.random() < HICCUP else 1.0
    return exp(random.gauss(0, NOISE)) * slow


def _draw_accepted(random: Random, shares: tuple[float, ...], requests: int) -> list[int]:
    accepted = [0] * K_MAX
    for _ in range(requests):
        for position in range(K_MAX):
            if random.random() >= shares[position]:
                break
            accepted[position] += 1
    return accepted
