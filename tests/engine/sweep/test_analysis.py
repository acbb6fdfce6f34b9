"""Sweeps: interleaved, compared round by round, by batch size too, honest about ties."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket
from specdeck.engine.sweep.analysis import (
    Visit,
    VisitSums,
    analyse,
    curve,
    optimum,
    tiers,
)
from specdeck.engine.sweep.plan import Plan


def visits(rates: dict[int, float], rounds: int, *, noise: float, drift: float) -> list[Visit]:
    random, found = Random(4), []
    for number, (round_, k) in enumerate(Plan(tuple(sorted(rates)), rounds, 1.0).order(random)):
        rate = rates[k] * (1 + drift * number) * (1 + random.gauss(0, noise))
        found.append(Visit(k, rate, 4 / rate, round_))
    return found


@given(st.integers(1, 9), st.integers(1, 6), st.integers())
def test_every_round_visits_every_k_once(k_max: int, rounds: int, seed: int) -> None:
    ks = tuple(range(k_max + 1))
    counted = Counter(Plan(ks, rounds, 1.0).order(Random(seed)))
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


def test_a_k_of_one_visit_is_unknown_and_beaten_by_none() -> None:
    found = [Visit(1, 409.8, 0.01, 0), Visit(4, 307.6, 0.01, 0), Visit(4, 521.0, 0.01, 1)]
    best = optimum(found, (1, 4, 8))
    assert best is not None
    assert (best.k, best.tied, best.unknown) == (4, (1, 8), (1, 8))
    assert not best.clear
    assert not best.told_apart
    assert best.as_json()["clear"] is False


def test_a_k_is_clear_only_where_every_k_of_the_plan_is_known() -> None:
    found = visits({0: 100, 1: 130, 2: 150}, 6, noise=0.01, drift=0.0)
    whole, cut = optimum(found, (0, 1, 2)), optimum(found, (0, 1, 2, 3))
    assert whole is not None
    assert cut is not None
    assert (whole.k, whole.clear, whole.unknown) == (2, True, ())
    assert (cut.k, cut.clear, cut.tied, cut.told_apart) == (2, False, (3,), True)


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


def step(number: int, requests: int, k: int, rate: float, seconds: float | None = 0.1) -> Step:
    drafts = requests if k else 0
    return Step(number, 0.0, requests, requests, k, drafts, drafts * k, drafts, seconds=seconds,
                committed=round(rate * 0.1))  # fmt: skip


def summed(k: int, number: int, rates: dict[int, float], steps: int = 3) -> VisitSums:
    found = VisitSums(k, number)
    for requests, rate in rates.items():
        for n in range(steps):
            found.add(step(n, requests, k, rate + n + number))
    return found


def best(sums: list[VisitSums], ks: tuple[int, ...]) -> dict[int, int]:
    return analyse(sums, ks).best


def test_a_schedule_of_ks_that_are_all_tied_is_no_finding() -> None:
    noise = (30.0, -40.0, 35.0, -20.0)
    sums = [
        summed(k, number, {4: 400.0 + k + (noise[number] if k else 0.0)})
        for number in range(4)
        for k in (0, 2)
    ]
    found = analyse(sums, (0, 2))
    assert found.optimum is not None
    assert not found.optimum.told_apart
    assert found.untold == {bucket(4)}
    assert not found.finds_schedule
    assert found.schedule(32) == [[1, 32, found.best[bucket(4)]]]


def test_a_schedule_is_a_finding_where_one_of_its_sizes_tells_ks_apart() -> None:
    noise = (30.0, -40.0, 35.0, -20.0)
    sums = [
        summed(k, n, {4: 400.0 + k + (noise[n] if k else 0.0), 16: 1000.0 - 60 * k})
        for n in range(4)
        for k in (0, 2)
    ]
    found = analyse(sums, (0, 2))
    assert found.untold == {bucket(4)}
    assert found.finds_schedule


def test_a_sweep_cut_short_in_its_second_round_has_no_best_k() -> None:
    sums = [summed(k, 0, {4: 400.0 + 40 * k}) for k in (0, 2, 4)]
    found = analyse([*sums, summed(2, 1, {4: 480.0})], (0, 2, 4))
    assert found.optimum is not None
    assert (found.optimum.k, found.optimum.tied, found.best_k) == (2, (0, 4), None)


def test_each_batch_size_has_its_own_best() -> None:
    sums = [
        summed(k, number, {1: 100.0 + 40 * k, 16: 1000.0 - 60 * k})
        for number in range(3)
        for k in (0, 2, 4)
    ]
    assert best(sums, (0, 2, 4)) == {bucket(1): 4, bucket(16): 0}


def test_a_batch_size_that_one_k_never_saw_is_left_out() -> None:
    sums = [
        summed(k, number, {4: 400.0 + k} | ({8: 900.0} if k else {}))
        for number in range(3)
        for k in (0, 2)
    ]
    assert best(sums, (0, 2)) == {bucket(4): 2}


def test_a_batch_size_seen_for_a_moment_is_left_out() -> None:
    sums = [summed(k, number, {4: 400.0}, steps=1) for number in range(3) for k in (0, 2)]
    assert best(sums, (0, 2)) == {}


def test_a_step_after_an_idle_engine_is_not_counted() -> None:
    found = VisitSums(2, 0)
    found.add(step(1, 4, 2, 400.0, seconds=None))
    assert (found.steps, found.visit(), found.observed_k) == (0, None, None)


def test_steps_of_another_k_are_noticed() -> None:
    found = VisitSums(2, 0)
    found.add(step(1, 4, 0, 400.0))
    found.add(step(2, 4, 2, 400.0))
    assert (found.steps, found.obeyed) == (2, 1)


def test_drafts_longer_than_the_k_that_the_steps_tell_are_no_obedience() -> None:
    found = VisitSums(1, 0)
    for number in range(4):
        found.add(Step(number, 0.0, 4, 24, 1, 4, 20, 4, seconds=0.1, committed=8))
    assert (found.obeyed, found.observed_k, found.is_obeyed) == (4, 5.0, False)


@pytest.mark.parametrize("drafts", [0, 1])
def test_shorter_drafts_are_the_drafters_own_affair(drafts: int) -> None:
    found = VisitSums(3, 0)
    found.add(Step(1, 0.0, 4, 8, 3, 4 * drafts, 4 * drafts, 4 * drafts, seconds=0.1, committed=8))
    assert found.is_obeyed


def test_a_draft_of_before_a_visit_of_zero_contradicts_nothing() -> None:
    found = VisitSums(0, 0)
    found.add(Step(1, 0.0, 4, 24, 0, 4, 20, 4, seconds=0.1, committed=8))
    for number in range(2, 12):
        found.add(Step(number, 0.0, 4, 4, 0, 0, 0, 0, seconds=0.1, committed=4))
    assert (found.observed_k, found.is_obeyed) == (5.0, True)


@given(st.dictionaries(st.integers(1, 300), st.integers(0, 8), min_size=1), st.integers(1, 300))
def test_tiers_cover_every_batch_size_once(best: dict[int, int], seqs: int) -> None:
    found = tiers(best, seqs)
    assert found[0][0] == 1
    assert found[-1][1] == seqs
    assert all(first <= last for first, last, _ in found)
    assert all(a[1] + 1 == b[0] and a[2] != b[2] for a, b in pairwise(found))
    for size, k in best.items():
        if size <= seqs:
            assert next(t[2] for t in found if t[0] <= size <= t[1]) == k


@pytest.mark.parametrize(("best", "seqs"), [({}, 8), ({1: 3}, 0)])
def test_nothing_to_write_is_said(best: dict[int, int], seqs: int) -> None:
    with pytest.raises(ValueError, match=r"measured|max_num_seqs"):
        tiers(best, seqs)


def test_next_to_no_work_has_no_rate() -> None:
    sums = VisitSums(3, 0)
    sums.add(Step(1, 0.0, 4, 16, 3, 4, 12, 6, seconds=5e-324, committed=10))
    assert sums.visit() is None
    assert sums.as_json()["tokens_per_second"] is None
