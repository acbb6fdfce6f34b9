from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from specdeck.engine.divergence.sampled import (
    ALPHA,
    Distributions,
    Sampling,
    distributions,
    gs,
    judged,
    p_value,
)


def draws(seed: int, biased: float = 0.0, count: int = 128) -> list[tuple[int, ...]]:
    """Two tokens: the first from no draft, the second too often the draft's by `biased`."""
    random = Random(seed)
    found: list[tuple[int, ...]] = []
    for _ in range(count):
        first = random.randrange(3)
        second = 9 if random.random() < biased else random.choice((first, first + 1, 9, 9))
        found.append((first, second))
    return found


def p(seed: int, biased: float) -> float:
    random = np.random.default_rng(seed)
    return p_value(gs(draws(2 * seed, biased), draws(2 * seed + 1), 999, random))


def test_p_values_of_one_distribution_are_spread_evenly() -> None:
    found = [p(seed, 0.0) for seed in range(60)]
    assert 0.3 < sum(found) / len(found) < 0.7
    assert min(found) > 1 / 1000


def test_a_verification_that_accepts_too_much_is_seen() -> None:
    assert all(p(seed, 0.7) < 0.01 for seed in range(10))


def test_the_first_token_says_nothing_of_drafts() -> None:
    one, other = [(1, 5)] * 50, [(2, 5)] * 50
    assert p_value(gs(one, other, 199, np.random.default_rng(1))) == 1.0


def test_a_difference_that_the_control_shows_as_well_is_no_proof() -> None:
    assert judged([0.5, 0.2], [0.9, 0.9]).word == "pass"
    assert judged([1e-5, 0.2], [0.9, 0.9]).word == "fail"
    assert judged([1e-5, 0.2], [1e-5, 0.9]).word == "inconclusive"


async def sampled(bench: Any, engine: Any, count: int) -> Distributions:
    async with bench.lab(engine) as lab:
        found: Distributions = await distributions(lab, bench.many(count), Sampling(tokens=2))
        return found


async def test_an_honest_engine_is_not_accused(bench: Any) -> None:
    found = await sampled(bench, bench.engine(), 12)
    data = found.as_json()
    assert (data["verdict"], data["prompts"]) == ("pass", 12)
    assert data["p_lowest"] >= ALPHA


async def test_a_biased_arm_is_found_and_its_control_is_clean(bench: Any) -> None:
    faults = {f"prompt {n}": bench.fault(1, margin=1.0) for n in (2, 5)}
    data = (await sampled(bench, bench.engine(faults=faults), 8)).as_json()
    assert data["verdict"] == "fail"
    assert data["control"]["p_lowest"] > ALPHA
    lowest = sorted(data["cases"], key=lambda case: case["p"])[:2]
    assert {case["prompt"] for case in lowest} == {2, 5}
