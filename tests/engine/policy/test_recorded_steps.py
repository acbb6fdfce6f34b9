"""An engine drawn from records."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from tests.support.recorded_steps import FEWEST, Cell, Engine, rate, read_pools


def records(batches: dict[int, int]) -> list[dict[str, Any]]:
    """Steps at k = 0, 1, 2 for so many requests, each k so many times; 20 ms + 5 ms a k."""
    found: list[dict[str, Any]] = []
    for requests, count in batches.items():
        for k in (0, 1, 2):
            for number in range(count + 1):
                drafts = requests if k and number else 0
                found.append(
                    {
                        "step": len(found) + 1,
                        "t": 0.0,
                        "requests": requests,
                        "tokens": requests + drafts * k,
                        "k": k,
                        "drafts": drafts,
                        "drafted": drafts * k,
                        "accepted_per_position": [drafts, 0][:k] or [0, 0],
                        "seconds": 0.02 + 0.005 * k,
                        "committed": requests + drafts,
                        "prefill": 0,
                    }
                )
    return found


def test_a_batch_size_that_lacks_a_k_is_left_out() -> None:
    pools = read_pools({"text": records({1: FEWEST, 4: FEWEST - 5})})
    assert list(pools) == [("text", 1)]


def test_steps_come_back_as_they_were_recorded() -> None:
    pools = read_pools({"text": records({4: FEWEST})})
    assert rate(pools, "text", 4, 2) == pytest.approx(8 / 0.03)
    engine = Engine(pools, Random(1))
    seen = [engine.step("text", 4, k) for k in (2, 2, 0, 0)]
    assert [s.verified for s in seen] == [0, 2, 2, 0]
    assert [s.committed for s in seen] == [4, 8, 8, 4]
    assert [s.settled for s in seen] == [False, True, False, True]
    assert seen[2].seconds == pytest.approx((0.03 + 0.02) / 2)


def test_every_k_meets_the_drafts_of_the_deepest() -> None:
    steps = records({1: FEWEST})
    for step in steps:
        if step["k"] == 1:
            step["accepted_per_position"] = [0, 0]
    assert rate(read_pools({"text": steps}), "text", 1, 1) == pytest.approx(2 / 0.025)


def test_steps_are_played_in_the_order_in_which_they_came() -> None:
    cell = Cell((0.02, 0.03), range(1, 501), [(1,)] * 10)
    engine = Engine({("text", 1): cell}, Random(2))
    seconds = [engine.step("text", 1, 0).seconds or 0.0 for _ in range(300)]
    step = 0.02 / 250.5
    follows = [round((b - a) / step) == 1 for a, b in pairwise(seconds)]
    assert sum(follows) >= len(follows) - 6
