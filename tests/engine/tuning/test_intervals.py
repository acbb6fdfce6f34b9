"""Intervals that hold what they promise."""

from random import Random

import pytest

from specdeck.engine.tuning.intervals import change, mean


def covered(correlation: float, seed: int) -> bool:
    """Whether the interval of two equal engines holds zero."""
    random = Random(seed)

    def blocks(count: int) -> list[float]:
        values, drift = [], 0.0
        for _ in range(count):
            drift = correlation * drift + random.gauss(0, 5)
            values.append(100 + drift)
        return values

    found = change(blocks(20), blocks(60))
    assert found is not None
    return found.low <= 0 <= found.high


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.92), (0.5, 0.85)])
def test_equal_engines_are_told_apart_as_rarely_as_promised(
    correlation: float, least: float
) -> None:
    assert sum(covered(correlation, seed) for seed in range(400)) / 400 >= least


def test_a_clear_difference_is_found() -> None:
    random = Random(1)
    found = change(
        [random.gauss(100, 5) for _ in range(20)], [random.gauss(110, 5) for _ in range(20)]
    )
    assert found is not None
    assert found.sign == 1


@pytest.mark.parametrize("blocks", [[], [1.0]])
def test_fewer_than_two_blocks_say_nothing(blocks: list[float]) -> None:
    assert mean(blocks) is None
    assert change(blocks, [1.0, 2.0]) is None
    assert change([1.0, 2.0], blocks) is None


def test_an_engine_that_stood_still_is_no_base() -> None:
    assert change([0.0, 0.0], [1.0, 2.0]) is None
