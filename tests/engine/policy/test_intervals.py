"""Intervals that hold what they promise."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.intervals import change, gain, mean, ratio


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


def test_a_change_is_never_below_minus_100_percent() -> None:
    found = change([1.0, 300.0, 2.0], [1.0, 3.0, 200.0])
    assert found is not None
    assert found.low == -1.0


WORK = st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 60.0))


@given(st.lists(WORK, min_size=2, max_size=40))
def test_the_interval_of_a_ratio_of_sums_holds_it(blocks: list[tuple[float, float]]) -> None:
    tokens, seconds = zip(*blocks, strict=True)
    found = ratio(tokens, seconds)
    assert found is not None
    assert found.value == sum(tokens) / sum(seconds)
    assert 0 <= found.low <= found.value <= found.high


@given(st.lists(st.tuples(WORK, WORK), min_size=2, max_size=12))
def test_a_gain_is_that_of_the_rates_and_no_loss_is_more_than_all(
    rounds: list[tuple[tuple[float, float], tuple[float, float]]],
) -> None:
    before, after = ({i: pair[side] for i, pair in enumerate(rounds)} for side in (0, 1))
    found, old, new = gain(before, after), *(
        ratio(*zip(*work.values(), strict=True)) for work in (before, after)
    )  # fmt: skip
    assert found is not None
    assert old is not None
    assert new is not None
    assert 1 + found.value == pytest.approx(new.value / old.value)
    assert -1 <= found.low <= found.value <= found.high


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_interval_of_a_ratio_holds_the_true_one_as_often_as_promised(share: float) -> None:
    random, held = Random(5), 0
    for _ in range(400):
        pauses = [0.8 if random.random() < share else 0.0 for _ in range(30)]
        seconds = [random.uniform(0.9, 1.1) for _ in pauses]
        tokens = [100 * work * random.gauss(1, 0.1) for work in seconds]
        found = ratio(tokens, [sum(both) for both in zip(seconds, pauses, strict=True)])
        assert found is not None
        held += found.low <= 100 / (1 + 0.8 * share) <= found.high
    assert held / 400 >= 0.92


def test_what_a_round_does_to_both_sides_is_no_noise_of_a_gain() -> None:
    waves = {number: (wave, 1.0) for number, wave in enumerate((100.0, 180.0, 60.0, 130.0))}
    faster = {n: (rate * 1.1 + n, 1.0) for n, (rate, _) in waves.items()}
    apart = gain(waves, faster)
    assert apart is not None
    assert apart.sign == 1


def test_a_gain_of_fewer_than_two_rounds_is_not_known() -> None:
    two, one = {0: (100.0, 1.0), 1: (90.0, 1.0)}, {0: (100.0, 1.0)}
    assert gain(two, one) is None
    assert gain(one, two) is None
    assert gain({0: (0.0, 1.0), 1: (0.0, 1.0)}, two) is None
