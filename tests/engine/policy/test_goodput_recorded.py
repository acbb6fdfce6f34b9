"""Goodput on steps that were recorded on a real engine."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from tests.support.recorded_steps import Engine, Pools, read_pools

from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.parameters import GoodputParameters

DATA = Path(__file__).parents[3] / "benchmarks" / "data"


@pytest.fixture(scope="module")
def pools() -> Pools:
    texts = defaultdict(list)
    for path in DATA.glob("steps*.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                texts[record["text"]].append(record)
    return read_pools(texts)


def share_of_the_oracle(pools: Pools, texts: tuple[str, ...], requests: int, k_max: int) -> float:
    """Of the tokens that the best k of each half minute would give, over three minutes."""
    engine, known = Engine(pools, Random(1)), Estimates(k_max)
    policy = Goodput(GoodputParameters(), known, k=k_max)
    tokens, most = 0, 0.0
    for text in texts:
        began = engine.t
        while engine.t < began + 180 / len(texts):
            seen = engine.step(text, requests, policy.decision.k(requests))
            known.add(seen)
            policy.step(seen)
            tokens += seen.committed
        best = max(pools[text, requests].rate(requests, k) for k in range(k_max + 1))
        most += best * (engine.t - began)
    return tokens / most


@pytest.mark.parametrize("requests", [1, 4, 8])
@pytest.mark.parametrize("texts", [("predictable",), ("hard",), ("predictable", "hard") * 3])
def test_it_comes_near_the_best_k(pools: Pools, texts: tuple[str, ...], requests: int) -> None:
    k_max = len(pools[texts[0], requests].seconds) - 1
    # A run of three minutes is itself a few percent off the recording's mean speed.
    assert share_of_the_oracle(pools, texts, requests, k_max) > 0.94
