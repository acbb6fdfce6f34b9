"""How many prompt tokens steps carry, and whether they follow the tokens handed out."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.prompts import PromptMix
from specdeck.engine.policy.step import Step


def steps(count: int, k: int, rate: float, random: Random) -> list[Step]:
    """Steps of 64 requests at k, in each of which `rate` prompts come on average."""
    tokens, made = 64 * (1 + k // 2), []
    for _ in range(count):
        prompts = sum(random.random() < rate / 8 for _ in range(8))
        made.append(
            Step(
                0, 0.0, 64, 64 * (1 + k) + 400 * prompts, k, 64, 64 * k, tokens - 64, 0.02, tokens,
                prefill=400 * prompts, verified=k, settled=True,
            )
        )  # fmt: skip
    return made


def visit_both(mix: PromptMix, follows: bool) -> None:
    random = Random(5)
    for _ in range(12):
        for k, count in ((4, 160), (0, 8)):
            rate = 1.5 if k or not follows else 0.5
            for _ in range(count // 8):
                mix.add(steps(8, k, rate, random))


def test_prompts_that_follow_the_tokens_are_told_from_those_that_do_not() -> None:
    closed, steady = PromptMix(), PromptMix()
    visit_both(closed, follows=True)
    visit_both(steady, follows=False)
    assert closed.follows > 0.8
    assert steady.follows < 0.2


def try_often(mix: PromptMix, follows: bool) -> None:
    """No k for longer than a try lasts: there is no long stretch to compare one with."""
    random = Random(5)
    for _ in range(40):
        for k in (4, 2, 4, 0):
            mix.add(steps(8, k, 1.5 * (1 + k // 2) / 3 if follows else 1.5, random))


def test_tries_that_come_one_after_another_tell_it_as_well() -> None:
    closed, steady = PromptMix(), PromptMix()
    try_often(closed, follows=True)
    try_often(steady, follows=False)
    assert closed.follows > 0.85
    assert steady.follows < 0.15


def test_a_comparison_that_says_nothing_takes_nothing_back() -> None:
    mix, random = PromptMix(), Random(5)
    try_often(mix, follows=False)
    for _ in range(100):  # until the tries are so long ago that all is of one k
        mix.add(steps(8, 4, 1.5, random))
    before = mix.follows
    for _ in range(1000):
        mix.add(steps(8, 4, 1.5, random))
    assert abs(mix.follows - before) < 0.01


def test_a_burst_of_prompts_by_chance_counts_for_no_more_than_chance() -> None:
    mix, random = PromptMix(), Random(5)
    try_often(mix, follows=False)
    mix.add(steps(8, 3, 8.0, random))
    mix.add(steps(8, 4, 1.5, random))
    assert mix.follows < 0.3


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 40), st.floats(0, 8)), max_size=30))
def test_they_follow_by_a_share(visits: list[tuple[int, int, float]]) -> None:
    mix, random = PromptMix(), Random(5)
    for k, count, rate in visits:
        mix.add(steps(count, k, rate, random))
        assert 0 <= mix.follows <= 1
        assert sum(share for share, _ in mix.kinds(2.0)) > 0.999


def test_where_they_follow_fewer_steps_carry_one_at_a_smaller_k() -> None:
    mix = PromptMix()
    visit_both(mix, follows=True)
    alone, deep = (
        sum(share * prompt for share, prompt in mix.kinds(tokens)) for tokens in (1.0, 3.0)
    )
    assert alone < 0.6 * deep


def test_prompts_that_ceased_are_forgotten() -> None:
    mix, random = PromptMix(), Random(5)
    mix.add(steps(64, 4, 1.5, random))
    assert mix.mean > 100
    for _ in range(100):
        mix.add(steps(8, 4, 0.0, random))
    assert mix.kinds(2.0) == ((1.0, 0),)
    assert mix.mean == 0


def parts_of_a_prompt(count: int, k: int = 3) -> list[Step]:
    """Steps that compute one long prompt, 2,048 tokens of it each, and answer nothing."""
    return [
        Step(0, 0.0, 1, 2049, k, 0, 0, 0, 0.05, 0, (0,) * 3, 2048, verified=k, settled=True)
    ] * count


def test_a_prompt_of_many_steps_says_nothing_of_tokens() -> None:
    mix, random = PromptMix(), Random(5)
    mix.add(parts_of_a_prompt(8))
    assert mix.tokens == 1.0
    assert mix.kinds(2.0)[-1][1] > 2000
    mix.add(steps(8, 4, 1.5, random))
    before = mix.tokens
    mix.add(parts_of_a_prompt(2000))
    assert mix.tokens == before


def test_a_stretch_that_answered_nothing_is_compared_with_none() -> None:
    mix, random = PromptMix(), Random(5)
    follows = mix.follows
    for k in (4, 0, 4, 0):
        mix.add(parts_of_a_prompt(64, k))
    mix.add(steps(64, 4, 1.5, random))
    mix.add(steps(1, 0, 1.5, random))
    assert mix.follows == follows
