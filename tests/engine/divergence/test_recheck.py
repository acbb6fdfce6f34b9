"""What the target makes of answers that it is fed again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check
from tests.support.completion_engine import Fault

from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.compare import Divergence
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.recheck import ask_target, compare_passes
from specdeck.engine.divergence.requests import Asker


def answer(*tops: dict[int, float]) -> Answer:
    """Of the likeliest of each of `tops`."""
    ranked = tuple(tuple(sorted(top.items(), key=lambda one: -one[1])) for top in tops)
    ids = tuple(top[0][0] for top in ranked)
    logprobs = tuple(top[0][1] for top in ranked)
    return Answer(ids, logprobs, ranked, "", (), "length", (1, 2), None, None, 1.0)


def thought(**logprobs: float) -> dict[str, Any]:
    return {name[1:]: {"logprob": value, "rank": 1} for name, value in logprobs.items()}


def test_a_pass_that_agrees_tells_the_noise_alone() -> None:
    said = answer({5: -0.5, 6: -1.0}, {7: -0.1, 8: -3.0})
    flip, distances = compare_passes(said, [thought(_5=-0.5, _6=-1.25), thought(_7=-0.1, _9=-4.0)])
    assert flip is None
    assert distances == [pytest.approx(0.25)]


def test_a_pass_that_disagrees_names_the_first_place_and_its_own_token() -> None:
    said = answer({5: -0.5, 6: -0.6}, {7: -0.1, 8: -3.0})
    flip, distances = compare_passes(said, [thought(_5=-0.7, _6=-0.6), thought(_7=-2.0, _8=-0.1)])
    assert flip == (0, 6)
    assert distances == [pytest.approx(-0.2), pytest.approx(-4.8)]


def test_of_two_tokens_that_are_as_likely_the_first_is_the_one_that_is_generated() -> None:
    said = answer({5: -0.5, 6: -0.6})
    flip, _ = compare_passes(said, [thought(_5=-0.5, _4=-0.5)])
    assert flip == (0, 4)
    flip, _ = compare_passes(said, [thought(_5=-0.5, _6=-0.5)])
    assert flip is None


def test_a_token_that_is_not_listed_says_nothing() -> None:
    assert compare_passes(answer({5: -0.5, 6: -0.6}), [thought(_9=-0.1)]) == (None, [])
    assert compare_passes(answer({5: -0.5, 6: -0.6}), [None]) == (None, [])


async def test_tokens_too_many_for_one_pass_are_looked_at_one_by_one(bench: Bench) -> None:
    """As what vLLM keeps of a pass grows with its tokens."""
    text = "long " * 500
    engine = bench.engine(faults={text: Fault(3, 4.0)})
    async with bench.lab(engine, max_tokens=8) as lab:
        data = (await finish_check(lab, bench.written({"prompt": text}), bench.store)).as_json()
    assert not [body for body in engine.asked if "prompt_logprobs" in body]
    assert [body for body in engine.asked if isinstance(body.get("prompt"), list)]
    assert data["cases"][0]["class"] == "material"
    assert data["cases"][0]["recheck"]["gap"] == 4.0


async def test_under_a_grammar_a_token_below_the_likeliest_ones_is_fed_as_well() -> None:
    forbidden = {str(token): {"logprob": -0.1 * token, "rank": token} for token in range(1, 6)}
    fed: list[tuple[int, ...]] = []

    class Target:
        async def score_tokens(self, tokens: tuple[int, ...], _: int) -> list[Any]:
            fed.append(tokens)
            logprob = {70: -9.0, 71: -9.02}[tokens[-1]]
            return [None, {**forbidden, str(tokens[-1]): {"logprob": logprob, "rank": 40}}]

    asked = Prompt(1, 1, {"prompt": "a", "structured_outputs": {"choice": ["x", "y"]}})
    said = replace(answer({70: -0.5}), prompt_ids=(8,), token_ids=(70,))
    found = Divergence(0, 70, 71, margin_serving=0.02, margin_reference=0.02)
    seen = await ask_target(found, asked, serving=said, reference=cast(Asker, Target()))
    assert fed == [(8, 70), (8, 71)]
    assert seen is not None
    assert seen.gap == pytest.approx(-0.02)
