"""What a step costs: measured where it was, by a plane where it was not."""

from __future__ import annotations

from math import exp, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.cost import MIDDLE, NO_PROMPTS, CostCell, CostModel, StepTimes, fit
from specdeck.engine.policy.table import BUCKETS

positive = st.floats(1e-5, 1e-2)


@given(positive, positive, positive, positive)
def test_what_a_plane_made_is_found_again(base: float, request: float, k: float, t: float) -> None:
    true = CostModel(base, request, k, t)
    cells = [CostCell(b, k, true.seconds(b, k), 2000) for b in (1, 4, 16, 64) for k in (0, 1, 3, 5)]
    found = fit(cells)
    assert found is not None
    for batch, k_ in ((2, 2), (32, 4), (64, 0)):
        assert found.seconds(batch, k_) == pytest.approx(true.seconds(batch, k_), rel=0.25)


@given(
    st.lists(
        st.builds(CostCell, st.integers(1, 512), st.integers(0, 8), positive, st.floats(1, 1e4)),
        min_size=1,
        max_size=40,
    )
)
def test_no_estimate_falls_with_k_or_batch(cells: list[CostCell]) -> None:
    model = fit(cells)
    assert model is not None
    assert min(model.base, model.per_request, model.per_k, model.per_token) >= 0


def test_one_cell_gives_a_model_in_which_drafting_costs() -> None:
    model = fit([CostCell(8, 5, 0.02, 100)])
    assert model is not None
    assert model.seconds(8, 5) == pytest.approx(0.02, rel=0.1)
    assert model.seconds(8, 0) < model.seconds(8, 5)


def test_nothing_gives_no_model() -> None:
    assert fit([]) is None
    assert fit([CostCell(1, 1, 0.0, 5)]) is None


def steps(random: Random, seconds: float, count: int = 8) -> list[float]:
    return [seconds * exp(random.gauss(0, 0.05)) for _ in range(count)]


def test_one_that_was_held_up_does_not_count() -> None:
    times = StepTimes()
    for block in range(20):
        times.add(0, 1, 3, [0.02] * 7 + [2.0], t=block)
    assert times.seconds(0, 3) == pytest.approx(0.02, rel=0.01)


def test_a_slower_machine_does_not_make_another_k_look_fast() -> None:
    times, random = StepTimes(), Random(5)
    for block in range(40):
        times.add(0, 1, 5, steps(random, 0.030), t=block)
        times.add(0, 1, 0, steps(random, 0.020), t=block)
    for block in range(40, 80):
        times.add(0, 1, 5, steps(random, 0.045), t=block)
    here, other = times.seconds(0, 5), times.seconds(0, 0)
    assert here is not None
    assert other is not None
    assert here == pytest.approx(0.045, rel=0.04)
    assert here / other == pytest.approx(1.5, rel=0.12)


def test_what_turns_out_far_faster_than_long_ago_is_believed_and_what_is_as_old_forgotten() -> None:
    random, times = Random(2), StepTimes()
    for block in range(9):
        for k, seconds in ((0, 0.01), (2, 0.06), (4, 0.1)):
            times.add(0, 1, k, steps(random, seconds), t=block)
    for block in range(9, 40):
        times.add(0, 1, 0, steps(random, 0.01), t=block)
    times.add(0, 1, 2, steps(random, 0.015), t=40)
    assert times.seconds(0, 2) == pytest.approx(0.015, rel=0.05)
    assert times.last(0, 4) is None
    assert times.last(0, 0) == 39


def test_a_machine_that_became_faster_makes_nothing_forgotten() -> None:
    random, times = Random(2), StepTimes()
    for block in range(40):
        faster = 0.5 if block >= 20 else 1.0
        times.add(0, 1, 4, steps(random, 0.02 * faster), t=block)
        if block in (0, 8, 22):
            times.add(0, 1, 2, steps(random, 0.015 * faster), t=block)
            times.add(0, 1, 0, steps(random, 0.01 * faster), t=block)
    assert all(times.last(0, k) is not None for k in (0, 2, 4))
    row = times.row(0, 4)
    assert row is not None
    assert row[4] / row[0] == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_longer_prompt_costs_shows_where_every_step_carries_one(seed: int) -> None:
    """The mean prompt is the same at every k, so that only single steps can tell."""
    times, random = StepTimes(), Random(seed)

    def spent(k: int, prompt: int) -> float:
        return 0.010 + 0.001 * k + 0.00005 * (8 * (1 + k) + prompt)

    for block in range(40):
        k = random.choice((1, 2, 4))
        prompts = [random.randrange(300, 900) for _ in range(8)]
        took = [spent(k, prompt) * exp(random.gauss(0, 0.03)) for prompt in prompts]
        times.add(5, 8, k, took, block, prompts=prompts)
    for prompt in (350, 850):
        found, _ = times.expect(5, 8, 2, ((1.0, prompt),))
        assert found == pytest.approx(spent(2, prompt), rel=0.1)


def test_a_batch_size_never_seen_is_derived_and_doubted() -> None:
    times, random = StepTimes(), Random(5)
    for block in range(20):
        for bucket, size in ((0, 1), (3, 4), (5, 8)):
            for k in (0, 2, 5):
                times.add(bucket, size, k, steps(random, 0.01 + 0.001 * k + 1e-4 * size * k), block)
    assert times.seconds(7, 3) == pytest.approx(0.01 + 0.003 + 1e-4 * 14 * 3, rel=0.1)
    assert times.error(7, 3) > 3 * times.error(5, 2)
    assert times.steps(7, 3) == 0


def test_nothing_is_known_before_the_first_step() -> None:
    times = StepTimes()
    assert times.seconds(0, 0) is None
    assert times.last(0, 0) is None


def measure_some(random: Random) -> StepTimes:
    """Times of a few buckets and k's, some with prompts, that leave others to be derived."""
    times = StepTimes()
    for block in range(60):
        bucket, k = random.choice((3, 4, 12)), random.choice((0, 2, 5))
        prompts = [random.randrange(50, 400)] * 8 if random.random() < 0.3 else []
        times.add(bucket, round(MIDDLE[bucket]), k, steps(random, 0.02 + 0.001 * k), block,
                  prompts=prompts)  # fmt: skip
    return times


@pytest.mark.parametrize("seed", range(3))
def test_all_ks_at_once_are_what_each_is_alone(seed: int) -> None:
    times = measure_some(Random(seed))
    for bucket in range(BUCKETS):
        size = MIDDLE[bucket]
        seconds, errors = times.expect_plain(bucket, size, 7)
        alone = [times.expect(bucket, size, k, NO_PROMPTS) for k in range(8)]
        assert seconds == [spent for spent, _ in alone]
        assert errors == [sqrt(error2) for _, error2 in alone]


def test_what_was_found_for_all_ks_is_found_anew_after_another_block() -> None:
    times = measure_some(Random(1))
    few, _ = times.expect_plain(4, 6, 3)
    every, _ = times.expect_plain(4, 6, 7)
    assert every[:4] == few[:4]
    assert len(every) > 7
    times.add(4, 6, 2, steps(Random(2), 0.5), 61.0)
    after, _ = times.expect_plain(4, 6, 7)
    assert after != every


@pytest.mark.parametrize("seed", range(3))
def test_the_shape_of_what_was_not_measured_is_that_of_its_row(seed: int) -> None:
    times = measure_some(Random(seed))
    for bucket, shape in enumerate(times.shapes(7)):
        assert (shape is None) == (bucket in (2, 3, 4, 5, 11, 12, 13))
        if shape is not None:
            seconds, _ = times.expect_plain(bucket, MIDDLE[bucket], 7)
            factor = seconds[0] / shape[0]
            assert seconds == pytest.approx([factor * each for each in shape])
