"""The score of sampled tokens: its size on honest arms, its power on others, what it says."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import numpy as np
import pytest
from tests.support.sampled_draws import HONEST, Fault, Language, score_arms

from specdeck.engine.divergence.likelihood import (
    SCORES,
    Places,
    Surprise,
    contrast,
    fit,
    measure_surprise,
    visible_effects,
)
from specdeck.engine.divergence.requests import Thoughts
from specdeck.engine.divergence.sampled import ALPHA, judge_draws
from specdeck.engine.divergence.scoring import Scores, lay_out_places

HALF = ALPHA / 2
"""The level of the likelihood's own test."""


@pytest.fixture(scope="module")
def language() -> Language:
    return Language(1)


def lowest(language: Language, runs: int, fault: Fault = HONEST, noise: float = 0.0) -> list[float]:
    found = (score_arms(language, seed, fault=fault, noise=noise) for seed in range(runs))
    return [scores.contrast.lowest for scores in found]


def test_honest_arms_are_not_accused(language: Language) -> None:
    found = lowest(language, 40)
    assert min(found) > HALF
    assert sum(found) / len(found) > 0.4  # after Holm's correction of four


def test_arms_that_round_otherwise_are_not_accused(language: Language) -> None:
    assert min(lowest(language, 12, noise=0.25)) > HALF


@pytest.mark.parametrize(
    "fault",
    [
        Fault(temperature=0.95),
        Fault(temperature=1.06),
        Fault(unchecked=0.2),
        Fault(unchecked=0.05, flat=True),
    ],
)
def test_a_fault_is_found(language: Language, fault: Fault) -> None:
    assert max(lowest(language, 8, fault)) < HALF


def test_a_smaller_models_drafts_accepted_unchecked_are_found(language: Language) -> None:
    # One token in twenty.
    found = [p < HALF for p in lowest(language, 20, Fault(unchecked=0.05))]
    assert sum(found) >= 17


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_draws_at_another_temperature_are_held_against_it(temperature: float) -> None:
    warm = Language(2, temperature=temperature)
    assert min(lowest(warm, 5)) > HALF
    assert max(lowest(warm, 3, Fault(unchecked=0.1, flat=True))) < HALF
    assert max(lowest(warm, 3, Fault(temperature=0.92))) < HALF


def test_the_first_effect_that_is_called_visible_is_found_four_times_in_five(
    language: Language,
) -> None:
    seen = score_arms(language, 0).visible(alpha=HALF)
    assert seen.temperature is not None
    assert seen.unchecked_flat is not None
    for fault in (
        Fault(temperature=seen.temperature[0]),
        Fault(unchecked=seen.unchecked_flat, flat=True),
    ):
        found = [p < HALF for p in lowest(language, 25, fault)]
        assert 0.6 < sum(found) / len(found) < 0.97


def test_the_reference_that_does_not_sample_by_its_own_figures_says_so(language: Language) -> None:
    honest = score_arms(language, 3)
    assert honest.own_fit.lowest > 0.001
    other = score_arms(language, 3, fault=Fault(temperature=0.9))
    assert fit(other.serving).lowest < 1e-6


def places(own: list[int], prefix: list[int] | None = None) -> Places:
    """A place where the target gives two tokens 3/4 and 1/4, again and again."""
    tops = np.tile(np.log([0.75, 0.25]), (len(own), 1))
    return Places(tops, np.array(own), np.array(prefix or range(len(own))))


def test_what_a_token_scores_is_held_against_its_expectation() -> None:
    found = measure_surprise(places([0, 0, 0, 1]), 1.0)
    assert (found.tokens, found.rare) == (4, 0)
    assert found.likelihood == pytest.approx(0.0)
    assert found.first_choice == pytest.approx(0.0)
    assert found.first_choice_variance == pytest.approx(4 * 0.75 * 0.25)
    assert found.likelihood_variance == pytest.approx(4 * 0.75 * 0.25 * math.log(3) ** 2)


def test_a_token_that_is_no_candidate_is_rare_and_nothing_else() -> None:
    found = measure_surprise(places([-1, 0]), 1.0)
    assert found.rare == 1
    assert found.rare_expected == pytest.approx(0.0)
    assert found.first_choice == pytest.approx(0.25)


def test_a_token_of_a_flatter_distribution_is_held_against_it_too() -> None:
    flat = np.array([0.75, 0.25]) ** 0.7
    ratio = flat / flat.sum() / [0.75, 0.25] - 1
    found = measure_surprise(places([0, 1, 1]), 1.0)
    assert found.flatter == pytest.approx(ratio @ [1, 2])
    assert found.flatter_variance == pytest.approx(3 * ratio**2 @ [0.75, 0.25])


def test_draws_after_one_prefix_are_no_independent_witnesses() -> None:
    apart = measure_surprise(places([0] * 8), 1.0)
    together = measure_surprise(places([0] * 8, [3] * 8), 1.0)
    assert together.first_choice_spread == pytest.approx(8 * apart.first_choice_spread)


def test_surprises_add_up() -> None:
    whole = measure_surprise(places([0, 1, 1, 0]), 1.0)
    parts = measure_surprise(places([0, 1]), 1.0) + measure_surprise(places([1, 0]), 1.0)
    assert astuple(parts) == pytest.approx(astuple(whole))


def test_nothing_is_told_from_nothing() -> None:
    found = contrast(Surprise(), Surprise())
    assert found.lowest == 1.0
    seen = visible_effects(Surprise(), Surprise(), temperature=1.0, alpha=HALF)
    assert not seen.shows_anything
    assert seen.line() == "nothing"


def test_a_target_that_is_sure_of_everything_shows_nothing_but_rare_tokens() -> None:
    sure = Surprise(tokens=20_000)
    seen = visible_effects(sure, sure + sure, temperature=1.0, alpha=HALF)
    assert seen.temperature is None
    assert seen.unchecked_likeliest is None
    assert seen.unchecked_flat is not None
    planted = replace(sure, rare=int(20_000 * seen.unchecked_flat))
    assert contrast(planted, sure + sure).p["rare"] < HALF / len(SCORES)


def test_the_verdict_names_what_is_wrong_with_the_tokens(language: Language) -> None:
    scores = score_arms(language, 1, fault=Fault(unchecked=0.05, flat=True))
    found = judge_draws([1.0], [1.0], scores)
    assert found.word == "fail"
    assert "too many are rare tokens" in found.reason
    cold = score_arms(language, 1, fault=Fault(temperature=0.9))
    assert "too likely" in judge_draws([1.0], [1.0], cold).reason


def test_a_reference_that_differs_from_itself_accuses_nobody(language: Language) -> None:
    found = score_arms(language, 1, fault=Fault(temperature=0.8))
    shaken = Scores(1.0, found.serving, found.reference, found.serving)
    assert judge_draws([1.0], [1.0], shaken).word == "inconclusive"


def test_the_draws_of_a_prompt_are_laid_out_by_place() -> None:
    known: dict[tuple[int, ...], tuple[Thoughts, ...]] = {
        (5, 1, 2): (Thoughts((-0.1, -2.5), 0), Thoughts((-0.5,), None)),
        (5, 1, 3): (Thoughts((-0.1, -2.5), 0), Thoughts((-0.5,), 0)),
    }
    found = lay_out_places([(5, 1, 2), (5, 1, 3), (5, 1, 3)], known)
    assert found.own.tolist() == [0, -1, 0, 0, 0, 0]
    assert found.prefix.tolist() == [0, 1, 0, 1, 0, 1]
    assert found.tops[1].tolist()[:2] == [-0.5, -math.inf]
