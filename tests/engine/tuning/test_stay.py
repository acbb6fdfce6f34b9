"""Stays: what the steps of one k come to, by batch size too."""

from specdeck.engine.control.protocol import Step
from specdeck.engine.policy.batches import bucket
from specdeck.engine.tuning.stay import Stay, best_by_batch


def step(number: int, requests: int, k: int, rate: float, seconds: float | None = 0.1) -> Step:
    drafts = requests if k else 0
    return Step(number, 0.0, requests, requests, k, drafts, drafts * k, drafts, seconds=seconds,
                committed=round(rate * 0.1))  # fmt: skip


def stay(k: int, number: int, rates: dict[int, float], steps: int = 3) -> Stay:
    found = Stay(k, number)
    for requests, rate in rates.items():
        for n in range(steps):
            found.add(step(n, requests, k, rate + n + number))
    return found


def test_each_batch_size_has_its_own_best() -> None:
    stays = [
        stay(k, number, {1: 100.0 + 40 * k, 16: 1000.0 - 60 * k})
        for number in range(3)
        for k in (0, 2, 4)
    ]
    assert best_by_batch(stays, (0, 2, 4)) == {bucket(1): 4, bucket(16): 0}


def test_a_batch_size_that_one_k_never_saw_is_left_out() -> None:
    stays = [
        stay(k, number, {4: 400.0 + k} | ({8: 900.0} if k else {}))
        for number in range(3)
        for k in (0, 2)
    ]
    assert best_by_batch(stays, (0, 2)) == {bucket(4): 2}


def test_a_batch_size_seen_for_a_moment_is_left_out() -> None:
    stays = [stay(k, number, {4: 400.0}, steps=1) for number in range(3) for k in (0, 2)]
    assert best_by_batch(stays, (0, 2)) == {}


def test_a_step_after_an_idle_engine_is_not_counted() -> None:
    found = Stay(2, 0)
    found.add(step(1, 4, 2, 400.0, seconds=None))
    assert (found.steps, found.visit(), found.observed_k) == (0, None, None)


def test_steps_of_another_k_are_noticed() -> None:
    found = Stay(2, 0)
    found.add(step(1, 4, 0, 400.0))
    found.add(step(2, 4, 2, 400.0))
    assert (found.steps, found.obeyed) == (2, 1)
