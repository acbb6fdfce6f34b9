"""What the verdicts find on engines made of numbers: a few of the runs of `check_power`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from tests.support.noisy_arms import NoisyEngine, check, count_patterns, gather, watch

from specdeck.engine.divergence import floors
from specdeck.engine.divergence.calibration import COARSE, MOST, Calibration
from specdeck.engine.divergence.canary import LEAST_NIGHTS, Canary
from specdeck.engine.divergence.compare import Divergence, Recheck
from specdeck.engine.divergence.floors import SIGNIFICANT, group_answers, weigh_excess
from specdeck.engine.divergence.runner import ALONE

RUNS = 20


def words(engine: NoisyEngine, prompts: int = 500, runs: int = RUNS) -> Counter[str]:
    return Counter(check(engine, prompts, seed).word for seed in range(runs))


@pytest.mark.parametrize(
    ("engine", "passes"),
    [
        (NoisyEngine(), RUNS),
        (NoisyEngine(repeat=0.01), RUNS),
        (NoisyEngine(repeat=0.05), RUNS - 1),
        (NoisyEngine(shape=0.06), RUNS),
        (NoisyEngine(repeat=0.05, shape=0.03), RUNS - 2),
        (NoisyEngine(repeat=0.1), RUNS - 2),
        (NoisyEngine(repeat=0.1, shape=0.06), RUNS - 4),
        (NoisyEngine(shape=0.03, paired=0.0), 0),
        (NoisyEngine(shape=0.03, varied=True), 0),
        (NoisyEngine(shape=0.06, varied=True), 0),
        (NoisyEngine(repeat=0.05, shape=0.06, varied=True), 0),
    ],
    ids=str,
)
def test_an_honest_engine_passes_and_never_fails(engine: NoisyEngine, passes: int) -> None:
    found = words(engine)
    assert found["fail"] == 0
    assert found["pass"] >= passes


def test_looks_of_several_shapes_are_as_high_a_floor_as_looks_of_one() -> None:
    engine = NoisyEngine(shape=0.06, varied=True)
    found = [weigh_excess(count_patterns(engine, 500, seed)) for seed in range(RUNS)]
    beyond = [one.over_look.value for one in found if one is not None and one.over_look]
    assert len(beyond) == RUNS
    assert abs(float(np.mean(beyond))) < 3 * 0.015 / RUNS**0.5  # three standard errors


def test_an_excess_is_found_beyond_looks_of_several_shapes() -> None:
    assert words(NoisyEngine(shape=0.03, excess=0.06, varied=True), runs=6)["fail"] == 6


@pytest.mark.parametrize("by_ask", [False, True])
@pytest.mark.parametrize("repeat", [0.0, 0.05, 0.2])
def test_a_defect_in_2_of_100_outputs_is_found_at_every_floor(repeat: float, by_ask: bool) -> None:
    assert words(NoisyEngine(repeat, defect=0.02, by_ask=by_ask), runs=6)["fail"] == 6


@pytest.mark.parametrize("repeat", [0.0, 0.05, 0.1, 0.2])
def test_an_excess_of_the_threshold_passes_in_1_of_20_checks_at_most(repeat: float) -> None:
    # Where an arm differs from itself, so much less of what it does otherwise is an excess.
    engine = NoisyEngine(repeat, shape=0.03, excess=0.015 / (1 - repeat))
    assert words(engine, runs=40)["pass"] <= 4


@pytest.mark.parametrize("repeat", [0.05, 0.1, 0.2])
def test_noise_costs_at_most_3_answers_for_each_10(repeat: float) -> None:
    patterns = count_patterns(NoisyEngine(repeat, shape=0.06), 500, 1)
    answers = sum(
        count * sum(len(arm) for arm in name.split(".")[:2]) for name, count in patterns.items()
    )
    assert 500 * 4 < answers + 500 / ALONE < 1.3 * 500 * 4


def test_noise_of_the_reference_is_no_material_difference() -> None:
    found = [gather(NoisyEngine(repeat=0.2), 500, seed) for seed in range(4)]
    assert [one.floor_material for one in found] == [0] * 4


def test_near_ties_beyond_the_floor_are_found_by_their_rate() -> None:
    assert words(NoisyEngine(0.05, excess=0.02))["fail"] >= RUNS // 2
    assert words(NoisyEngine(0.05, excess=0.05))["fail"] == RUNS


def test_the_excess_that_is_said_to_be_found_is_found() -> None:
    for repeat in (0.0, 0.05):
        excess = gather(NoisyEngine(repeat), 500, 1).excess
        assert excess is not None
        shown = excess.detectable(0.015)
        assert 0.015 < shown < 0.03
        assert words(NoisyEngine(repeat, excess=shown), runs=25)["fail"] >= 15


def test_equal_answers_share_a_letter_and_a_look_is_the_answer_it_would_have_made() -> None:
    reference, serving = [(1, 2, 3), (1, 2, 3)], [(1, 9, 9), (1, 2, 3)]
    assert group_answers(reference, serving, [(1, 9), (2, 4), None]) == "aa.ba.bca"


def test_what_the_verify_shape_explains_is_no_excess() -> None:
    plain = weigh_excess({"aa.aa.a": 480, "aa.bb.a": 20})
    shape = weigh_excess({"aa.aa.a": 480, "aa.bb.b": 20})
    assert plain is not None
    assert shape is not None
    assert (plain.least.value, shape.least.value) == (0.04, 0.0)
    assert plain.upper > 0.015 > shape.upper


def test_a_floor_of_a_few_looks_can_explain_an_excess_without_lowering_it() -> None:
    # Measured on a real engine with noise by the number of rows, one stream.
    found = weigh_excess({"aa.aa.a": 244, "aaaa.bbbb.aaaa": 4, "aaaa.bbbb.bbbb": 2})
    assert found is not None
    assert found.over_shape is None  # 2 of 250 may be chance
    assert found.least.value == 0.024
    assert found.p > SIGNIFICANT
    # The same without looks that flip is beyond any floor.
    alone = weigh_excess({"aa.aa.a": 244, "aaaa.bbbb.aaaa": 6})
    assert alone is not None
    assert alone.p < SIGNIFICANT


def test_an_arm_with_noise_of_its_own_is_held_against_that_noise() -> None:
    # Serving differs from itself as from the reference, which never does from itself.
    found = weigh_excess({"aa.aa.a": 460, "aaaa.abab.aaaa": 20, "aaaa.baba.aaaa": 20})
    assert found is not None
    assert found.p > SIGNIFICANT


def test_the_bound_of_an_engine_that_repeats_itself_is_exact() -> None:
    found = weigh_excess({"aa.aa.a": 197, "aa.bb.a": 3})
    assert found is not None
    assert found.upper == pytest.approx(0.0383, abs=1e-4)  # Clopper and Pearson's for 3 of 200
    assert not found.has_noise


def test_chance_is_reckoned_exactly_by_changing_labels() -> None:
    # Each prompt has its two like answers in one arm in 2 of 6 ways.
    found = weigh_excess({"aa.bb.": 3, "aa.aa.": 97})
    assert found is not None
    assert found.over_repeat.p == pytest.approx((1 / 3) ** 3)


def test_chance_is_that_of_all_sums_of_relabelled_prompts() -> None:
    patterns = {"aa.bb.": 2, "aabb.abbb.": 3, "aa.ab.": 4, "abcd.aabc.": 2, "aa.aa.": 50}
    sums = {0: Fraction(1)}
    for name, count in patterns.items():
        values = floors._relabel(*name.split(".")[:2])
        for _ in range(count):
            made: dict[int, Fraction] = {}
            for (before, chance), value in product(sums.items(), values):
                whole = before + value
                made[whole] = made.get(whole, Fraction()) + chance / len(values)
            sums = made
    for total in (-1.0, 0.5, 2.0, 4.25):
        least = round(total * floors._UNIT)
        exact = sum(chance for whole, chance in sums.items() if whole >= least)
        assert floors._chance(patterns, total) == pytest.approx(float(exact), rel=1e-9)


def test_the_chance_of_many_prompts_is_not_cut_where_it_is_small() -> None:
    # As many as differ in one arm alone by chance: a fair coin each, by the normal curve.
    chances = [floors._chance({"aa.bb.": 20_000}, 6_000 + 100 * n) for n in range(-100, 100, 20)]
    assert chances == sorted(chances, reverse=True)
    middle = floors._chance({"aa.bb.": 20_000}, 0.0)
    assert middle == pytest.approx(0.5, abs=0.01)
    spread = math.sqrt(20_000 / 2)  # 1 in 1 of 3 ways, -1/2 in the others
    for z in (2.0, 4.0):
        tail = 1 - NormalDist().cdf(z)
        assert floors._chance({"aa.bb.": 20_000}, z * spread) == pytest.approx(tail, rel=0.3)


def test_as_many_prompts_as_are_asked_for_settle_it_four_times_in_five() -> None:
    engine, asked, settled = NoisyEngine(repeat=0.02), 0, 0
    for seed in range(25):
        wanted = check(engine, 150, seed).prompts_wanted
        if wanted is not None and wanted < 3000:
            asked += 1
            settled += check(engine, wanted, 1000 + seed).word == "pass"
    assert asked > 10
    assert settled >= 0.8 * asked


def parted(looks: tuple[float, ...], margin: float) -> Divergence:
    return Divergence(
        5, 1, 2, margin_serving=margin, margin_reference=margin,
        recheck=Recheck(min(looks), 2, max(looks), looks),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("looks", "margin", "kind"),
    [
        ((3.0, 2.9, 3.1), 3.0, "material"),
        ((3.0, 0.05, 3.1), 0.3, "unreproduced"),
        ((0.0, 0.0, 0.0), 0.3, "near_tie"),
        ((0.0, 0.0, 0.0), 3.0, "reference_differs"),
    ],
)
def test_material_is_what_shows_in_every_look(
    looks: tuple[float, ...], margin: float, kind: str
) -> None:
    assert parted(looks, margin).kind(0.25) == kind


@pytest.mark.parametrize(
    ("serving", "reference", "kind"),
    [
        (8.25, -8.25, "reference_differs"),  # it said what it finds worse by far
        (-8.25, 8.25, "near_tie"),  # serving did, and the target agrees with it all the same
        (0.3, -0.3, "near_tie"),
        (8.25, None, "near_tie"),
    ],
)
def test_a_reference_that_says_what_it_finds_worse_is_none(
    serving: float, reference: float | None, kind: str
) -> None:
    found = replace(
        parted((0.0, 0.0, 0.0), serving), margin_serving=serving, margin_reference=reference
    )
    assert found.kind(0.25) == kind


def test_a_fine_head_over_a_coarse_body_has_the_noise_of_the_body() -> None:
    random = np.random.default_rng(3)
    ruler = Calibration({"reference": [2000, *[0] * 11]})
    ruler.note_formats("torch.bfloat16", "bfloat16")
    ruler.see_noise(random.normal(0.0, 0.07, 20_000).tolist())
    assert 0.2 < ruler.near_tie() < 0.4
    ruler.see_noise([9.0] * 2000)
    assert ruler.near_tie() == MOST * COARSE


def test_bodies_of_other_formats_differ_by_what_the_coarser_one_rounds() -> None:
    ruler = Calibration({"reference": [2000, *[0] * 11]}, {-1000: 5000})
    ruler.note_formats("bfloat16", "float32")
    assert ruler.near_tie() == MOST * COARSE


def night_rates(rate: float, prompts: int = 60) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.where(np.arange(500) < prompts, rate * 500 / prompts, 0.0)


@pytest.mark.parametrize("prompts", [40, 500])
def test_the_canary_finds_the_incident_within_five_nights(prompts: int) -> None:
    usual, later = night_rates(0.012, prompts), night_rates(0.021, prompts)
    found = [watch(usual, later, nights=30, most=20, seed=seed) for seed in range(15)]
    late = [20 if one.since is None else one.since - 30 for one in found]
    assert 0 < float(np.median(late)) <= 5


def test_honest_noisy_nights_raise_no_alarm() -> None:
    for rate, seed in ((0.012, 0), (0.05, 1), (0.1, 2)):
        usual = night_rates(rate)
        canary = watch(usual, usual, nights=200, most=0, seed=seed)
        assert (canary.word, canary.nights) == ("as before", 200)


def test_busy_nights_raise_alarms_no_more_often_than_one_night_in_700() -> None:
    usual = night_rates(0.05)
    found = [watch(usual, usual, nights=200, most=0, seed=seed, varies=0.3) for seed in range(10)]
    alarms = sum(one.since is not None for one in found)
    assert sum(one.nights for one in found) >= 700 * alarms


def test_a_change_is_found_where_nights_vary_too() -> None:
    found = [
        watch(night_rates(0.012), night_rates(0.036), nights=30, most=20, seed=seed, varies=0.2)
        for seed in range(5)
    ]
    late = [20 if one.since is None else one.since - 30 for one in found]
    assert 0 < float(np.median(late)) <= 6


def test_prompts_that_never_differed_are_found_though_the_total_hardly_grows() -> None:
    usual = night_rates(0.012, 40)
    fresh = usual.copy()
    fresh[-4:] = 0.95
    found = watch(usual, fresh, nights=30, most=20, seed=1)
    assert found.since is not None
    assert 30 < found.since <= 40


def test_five_times_as_many_differences_are_found_at_once() -> None:
    found = watch(night_rates(0.012), night_rates(0.06), nights=14, most=6, seed=1)
    assert found.since in (15, 16)


def test_a_canary_speaks_from_its_second_week_on_and_remembers() -> None:
    canary, words = Canary(), []
    for _ in range(LEAST_NIGHTS):
        canary = Canary.from_json(canary.as_json()).next_night({"a": 2})
        words.append(canary.word)
    assert words == ["too early"] * (LEAST_NIGHTS - 1) + ["as before"]
    for _ in range(3):
        canary = canary.next_night(dict.fromkeys("bcdefgh", 2))
    assert canary.word == "changed"
    assert canary.next_night({"a": 2}).word == "changed"


def test_the_nights_of_an_older_canary_count_and_the_ranks_begin_anew() -> None:
    canary = Canary()
    for _ in range(LEAST_NIGHTS):
        canary = canary.next_night({"a": 2})
    older = {
        name: value
        for name, value in canary.as_json().items()
        if name not in ("nightly", "starts", "gross")
    }
    found = Canary.from_json(older).next_night({"a": 2})
    assert (found.word, found.nights, found.nightly) == ("as before", LEAST_NIGHTS + 1, (2,))


def test_what_a_canary_keeps_does_not_grow_without_end() -> None:
    canary = Canary(nightly=(1,) * 2000, nights=2000, starts=(0.5,) * 60)
    found = canary.next_night({"a": 1})
    assert (len(found.nightly), len(found.starts)) == (2000, 60)
