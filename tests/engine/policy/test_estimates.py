"""What steps teach: acceptance by position, and speed by batch size and k."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy import estimates
from specdeck.engine.policy.cost import Prompts
from specdeck.engine.policy.estimates import Acceptance, Curve, Estimates, tokens_by_k
from specdeck.engine.policy.intervals import Mean, ratio
from specdeck.engine.policy.step import Step

SHARES = (0.8, 0.6, 0.5, 0.5, 0.5)


def feed(window: Acceptance, ks: list[int], shares: tuple[float, ...], random: Random) -> bool:
    shifted = False
    for number, k in enumerate(ks, start=1):
        accepted = [0] * 5
        for _ in range(8):
            for position in range(k):
                if random.random() >= shares[position]:
                    break
                accepted[position] += 1
        window.add(8, k, accepted)
        if number % 8 == 0:
            shifted = window.merge() or shifted
    window.merge()
    return shifted


@pytest.mark.parametrize("ks", [[5], [2, 5, 5, 5], [1, 1, 1, 5]])
def test_a_moving_k_does_not_change_the_estimate(ks: list[int]) -> None:
    window = Acceptance(5)
    feed(window, ks * 400, SHARES, Random(3))
    true = [0.8, 0.48, 0.24, 0.12, 0.06]
    assert window.survival == pytest.approx(true, abs=0.04)
    assert window.expected[0] == 1.0
    assert window.expected[2] == pytest.approx(1 + 0.8 + 0.48, abs=0.06)


def test_a_change_of_text_is_noticed_within_two_blocks() -> None:
    window = Acceptance(5)
    feed(window, [3] * 400, SHARES, Random(3))
    assert feed(window, [3] * 16, (0.1,) * 5, Random(3))
    assert window.survival[0] < 0.4


def test_the_first_text_is_no_change() -> None:
    window = Acceptance(5)
    window.add(8, 5, (0, 0, 0, 0, 0))
    assert not window.merge(anew=True)


def test_a_text_that_comes_back_is_known_at_once() -> None:
    window, random = Acceptance(5), Random(3)
    feed(window, [5] * 200, SHARES, random)
    feed(window, [5] * 200, (0.1,) * 5, random)
    window.add(24, 5, (19, 12, 6, 3, 1))
    assert window.merge(anew=True)
    assert window.drafts(1) > 400
    assert window.survival[:2] == pytest.approx([0.8, 0.48], abs=0.08)


def test_another_text_is_not_taken_for_one_that_was_there() -> None:
    window, random = Acceptance(5), Random(3)
    feed(window, [5] * 200, SHARES, random)
    feed(window, [5] * 200, (0.1,) * 5, random)
    feed(window, [5] * 200, (0.45,) * 5, random)
    assert window.survival[0] == pytest.approx(0.45, abs=0.05)


def test_the_texts_that_are_remembered_are_few() -> None:
    window, random = Acceptance(5), Random(3)
    for number in range(40):
        feed(window, [5] * 24, ((number * 0.37) % 1.0,) * 5, random)
    assert 0 < len(window._texts) <= 4


def test_the_same_text_rarely_looks_changed() -> None:
    window, random = Acceptance(5), Random(3)
    feed(window, [3] * 200, SHARES, random)
    assert sum(feed(window, [3] * 8, SHARES, random) for _ in range(500)) <= 5


def test_positions_that_were_never_drafted_are_guessed_from_the_last() -> None:
    window = Acceptance(5)
    feed(window, [1] * 400, (0.9,) * 5, Random(3))
    assert window.survival[1] == pytest.approx(0.81, abs=0.05)
    assert window.error(1, 2) > 5 * window.error(0, 1)


@given(
    st.lists(
        st.tuples(st.integers(1, 32), st.integers(0, 5), st.lists(st.floats(0, 1), min_size=5)),
        max_size=40,
    )
)
def test_survival_never_rises_and_stays_a_share(
    steps: list[tuple[int, int, list[float]]],
) -> None:
    window = Acceptance(5)
    for requests, k, shares in steps:
        accepted, before = [], requests
        for share in shares[:5]:
            before = int(before * share)
            accepted.append(before)
        window.add(requests, k, accepted)
        window.merge()
    chain = [1.0, *window.survival]
    assert all(0 <= b <= a for a, b in pairwise(chain))
    assert 1 <= window.expected[-1] <= 6


counts = st.lists(st.integers(0, 1000), min_size=5, max_size=5)


@given(counts, counts)
def test_more_k_never_means_fewer_tokens(drafted: list[int], accepted: list[int]) -> None:
    found = tokens_by_k(drafted, [min(a, d) for a, d in zip(accepted, drafted, strict=True)], 5)
    if found is None:
        assert drafted[0] == 0
        return
    values = [tokens.value for tokens in found]
    assert values == sorted(values)
    marks = [tokens.extrapolated for tokens in found]
    assert marks == sorted(marks)


def test_counters_of_a_moving_k_keep_their_own_denominators() -> None:
    found = tokens_by_k([1000, 100], [800, 50], 2)
    assert found is not None
    assert found[2].value == pytest.approx(1 + 0.8 + 0.5)
    assert not found[2].extrapolated


def test_the_interval_holds_its_value_where_a_block_took_a_pause() -> None:
    curve = Curve()
    for number in range(16 * 8):
        # A pause of the machine in one block: means of ratios know nothing of its length.
        seconds = 5.0 if number == 40 else 0.02
        curve.add(1, Step(number, number * 0.02, 2, 16, 7, 2, 14, 4, seconds, 6, settled=True))
    (point,) = curve.points()
    low, high = point.tokens_per_second_low, point.tokens_per_second_high
    assert low is not None
    assert high is not None
    assert 0 <= low <= point.tokens_per_second <= high


def test_looking_again_costs_what_was_measured_since(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out = 0

    def count(tops: Sequence[float], bottoms: Sequence[float]) -> Mean | None:
        nonlocal worked_out
        worked_out += 1
        return ratio(tops, bottoms)

    def work(curve: Curve, k: int, steps: int, first: int, seconds: float = 0.02) -> None:
        for number in range(first, first + steps):
            t = number * 0.02
            curve.add(1, Step(number, t, 2, 16, k, 2, 14, 4, seconds, 6, settled=True))

    monkeypatch.setattr(estimates, "ratio", count)
    curve, unseen = Curve(), Curve()
    for each in (curve, unseen):
        for k in range(8):
            work(each, k, 16 * 50, k * 800)
    assert [len(curve.points()) for _ in range(100)] == [8] * 100
    assert worked_out == 8
    for each in (curve, unseen):
        work(each, 3, 16, 6400, seconds=0.05)
    worked_out = 0
    assert curve.points() == unseen.points()
    assert worked_out == 1 + 8
    for each in (curve, unseen):  # the first of it is forgotten, then all
        each.look(601.0)
    assert curve.points() == unseen.points() != ()
    for each in (curve, unseen):
        each.look(10_000.0)
    assert curve.points() == unseen.points() == ()


def test_only_the_costs_that_somebody_asks_for_are_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Estimates(8)
    for number in range(40):
        prompt = 200 * (number % 3 == 0)
        known.add(
            Step(number, 0.01 * number, 4, 16 + prompt, 3, 4, 12, 6, 0.02, 10, (4, 2) + (0,) * 6,
                 prompt, 3, settled=True)
        )  # fmt: skip
    asked: list[int] = []
    expect = known.times.expect

    def count(bucket: int, size: float, k: int, prompts: Prompts) -> tuple[float, float]:
        asked.append(k)
        return expect(bucket, size, k, prompts)

    monkeypatch.setattr(known.times, "expect", count)
    here = known.bucket
    alone = known.cost(here, 0)
    assert known.cost(here, 0) == alone
    assert asked == [0]
    costs = known.costs(here)
    assert costs is not None
    assert asked == list(range(9))
    assert alone == (costs[0][0], costs[1][0])
    assert known.cost(here, 5) == (costs[0][5], costs[1][5])
    assert asked == list(range(9))
