"""Sweeps: interleaved, compared round by round, honest about ties."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.tuning.sweep import Visit, curve, optimum, order


def visits(rates: dict[int, float], rounds: int, *, noise: float, drift: float) -> list[Visit]:
    random, found = Random(4), []
    for number, (round_, k) in enumerate(order(sorted(rates), rounds, random)):
        rate = rates[k] * (1 + drift * number) * (1 + random.gauss(0, noise))
        found.append(Visit(k, rate, 4 / rate, round_))
    return found


@given(st.integers(1, 9), st.integers(1, 6), st.integers())
def test_every_round_visits_every_k_once(k_max: int, rounds: int, seed: int) -> None:
    ks = range(k_max + 1)
    counted = Counter(order(ks, rounds, Random(seed)))
    assert counted == Counter((number, k) for number in range(rounds) for k in ks)


def test_the_best_is_found_while_the_load_drifts() -> None:
    found = optimum(visits({0: 100, 1: 130, 2: 150, 3: 140}, 6, noise=0.01, drift=0.02))
    assert found is not None
    assert (found.k, found.next_k, found.clear) == (2, 3, True)
    assert found.over_target_only is not None
    assert found.over_target_only.low < 0.5 < found.over_target_only.high


def test_what_cannot_be_told_apart_is_tied() -> None:
    found = optimum(visits({0: 100, 2: 150, 3: 150.5}, 5, noise=0.03, drift=0.0))
    assert found is not None
    assert {found.k, *found.tied} == {2, 3}
    assert not found.clear


def test_target_only_can_be_the_best() -> None:
    found = optimum(visits({0: 100, 1: 90}, 4, noise=0.01, drift=0.0))
    assert found is not None
    assert (found.k, found.over_target_only) == (0, None)


def test_one_round_says_nothing_yet() -> None:
    once = visits({0: 100, 1: 90}, 1, noise=0.01, drift=0.0)
    assert optimum(once) is None
    assert curve(once) == ()


def test_a_sweep_cut_short_uses_what_it_has() -> None:
    found = visits({0: 100, 1: 130, 2: 150}, 3, noise=0.01, drift=0.0)[:-1]
    best = optimum(found)
    assert best is not None
    assert best.k == 2
    assert [point.k for point in curve(found)] == [0, 1, 2]
    assert all(point.tokens_per_second.low < point.tokens_per_second.high for point in curve(found))


NOISY = {
    0: ((20.0, 1.0), (180.0, 1.0), (21.0, 4.9)),
    4: ((340.0, 1.0), (50.0, 1.0), (30.0, 4.8)),
    8: ((500.0, 1.0), (160.0, 1.0), (50.0, 1.1)),
}
"""(tokens, seconds) of three rounds on a machine that others use as well."""


def noisy() -> list[Visit]:
    return [
        Visit(k, tokens / seconds, 4 * seconds / tokens, number, 4.0, seconds)
        for k, stays in NOISY.items()
        for number, (tokens, seconds) in enumerate(stays)
    ]


def test_gains_on_a_noisy_machine_are_those_of_the_curve() -> None:
    found, points = optimum(noisy()), {point.k: point.tokens_per_second for point in curve(noisy())}
    assert found is not None
    assert found.over_target_only is not None
    assert found.k == 8
    assert found.over_target_only.value == pytest.approx(points[8].value / points[0].value - 1)
    assert found.over_target_only.low > -1
    assert found.tied == (0, 4)
    for k, stays in NOISY.items():
        tokens, seconds = (sum(part) for part in zip(*stays, strict=True))
        assert points[k].value == pytest.approx(tokens / seconds)
        assert 0 <= points[k].low <= points[k].value <= points[k].high


def test_a_round_cut_short_still_counts_in_rates_and_gains() -> None:
    cut = visits({0: 100, 2: 150}, 5, noise=0.01, drift=0.0)[:-1]
    found, points = optimum(cut), {point.k: point.tokens_per_second.value for point in curve(cut)}
    assert found is not None
    assert found.over_target_only is not None
    assert found.over_target_only.value == pytest.approx(points[2] / points[0] - 1)
    assert found.over_target_only.sign == 1
