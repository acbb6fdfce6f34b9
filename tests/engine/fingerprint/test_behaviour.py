"""The third layer: still over repetitions, moved by kernels."""

import math
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.noisy_probes import noisy_probes

from specdeck.engine.fingerprint.behaviour import (
    Behaviour,
    Probe,
    ProbeAnswer,
    explain_incomparable,
    explain_lost_agreement,
    moved_probes,
    parted_probes,
    probes_to_ask,
    settle,
)


def answers(noise: float = 0.0, shift: float = 0.0, seed: int = 1) -> list[ProbeAnswer]:
    steady, shaking = random.Random(1), random.Random(seed)
    return [
        ProbeAnswer(
            tuple(steady.randrange(2000) for _ in range(24)),
            tuple(-steady.random() + shift + shaking.uniform(-noise, noise) for _ in range(24)),
        )
        for _ in range(16)
    ]


def runs(noise: float, seed: int, shift: float = 0.0) -> Behaviour:
    repeats = [answers(noise, shift, seed * 100 + run) for run in range(3)]
    return settle({"serving": repeats}, ())


def test_a_still_engine_has_one_name_and_the_finest_step() -> None:
    first, second = runs(0.0, 1), runs(0.0, 2)
    assert first.name == second.name
    assert (first.agreement, first.noise, first.step) == (1.0, 0.0, 1e-4)


@pytest.mark.parametrize("noise", [1e-5, 1e-3, 2e-2])
def test_a_trembling_engine_never_moves_beyond_its_step(noise: float) -> None:
    behaviours = [runs(noise, seed) for seed in range(20)]
    assert len({one.step for one in behaviours}) == 1
    assert [moved_probes(behaviours[0], one) for one in behaviours[1:]] == [()] * 19


def test_a_name_is_rounded_and_a_comparison_is_not() -> None:
    one, other = (
        Behaviour({"serving": (ProbeAnswer((1,), (logprob,)),)}, 3, 1.0, 0.0)
        for logprob in (-0.500049, -0.500051)
    )
    assert one.step == other.step == 1e-4
    assert one.name != other.name
    assert moved_probes(one, other) == moved_probes(other, one) == ()


def test_a_shift_of_every_probability_is_seen_and_measured() -> None:
    found = moved_probes(runs(0.0, 1), runs(0.0, 1, shift=0.03125))
    assert len(found) == 16
    assert {one.token for one in found} == {None}
    assert found[0].logprob == pytest.approx(0.03125)


def test_another_token_is_named_and_what_follows_it_does_not_count() -> None:
    old = Behaviour({"serving": (ProbeAnswer((1, 2, 3), (-0.1, -0.2, -0.3)),)}, 9, 1.0, 0.0)
    new = Behaviour({"serving": (ProbeAnswer((1, 9, 3), (-0.1, -5.0, -9.0)),)}, 9, 1.0, 0.0)
    (one,) = moved_probes(old, new)
    assert (one.token, one.logprob) == (1, 0.0)


def test_the_most_frequent_answer_counts_and_the_rest_is_disagreement() -> None:
    usual, odd = ProbeAnswer((1, 2), (-0.1, -0.2)), ProbeAnswer((1, 3), (-0.1, -0.9))
    found = settle({"serving": [[usual], [odd], [usual]]}, ())
    assert found.arms["serving"] == (usual,)
    assert found.agreement == pytest.approx(2 / 3)
    assert found.noise == 0.0


def test_a_missing_arm_makes_the_name_partial() -> None:
    whole = settle({"serving": [answers()]}, ())
    part = settle({"serving": [answers()]}, ["target-only: no plugin"])
    assert part.name == whole.name.replace("x", "x~")


def test_a_behaviour_survives_its_pin() -> None:
    found = runs(0.0, 3)
    again = Behaviour.from_json(found.as_json())
    assert again.name == found.name
    assert moved_probes(found, again) == ()


def test_two_probe_sets_are_not_compared() -> None:
    old = settle({"serving": [answers()]}, ())
    new = Behaviour(settle({"serving": [answers(0, 1.0)]}, ()).arms, 1, 1.0, 0.0, probe_set=99)
    assert moved_probes(old, new) == ()


def answered(wrong: float, seed: int) -> Behaviour:
    """An engine that answers so many of its requests with another token."""
    steady, shaking = answers(), random.Random(seed)
    other = ProbeAnswer((666,) * 24, (-9.0,) * 24)
    repeats = [[other if shaking.random() < wrong else one for one in steady] for _ in range(3)]
    return settle({"serving": repeats, "target-only": repeats}, ())


def test_an_engine_that_agrees_with_itself_no_more_has_changed() -> None:
    found = explain_lost_agreement(answered(0.0, 1), answered(0.3, 1))
    assert found is not None
    assert found.endswith("agree over 3 runs, 100.0 % did")


@pytest.mark.parametrize("wrong", [0.0, 0.02, 0.2])
def test_an_engine_that_disagrees_as_ever_has_not(wrong: float) -> None:
    looks = [answered(wrong, seed) for seed in range(30)]
    assert [explain_lost_agreement(looks[0], one) for one in looks[1:]] == [None] * 29


def test_noise_of_its_own_hides_no_move_of_an_engine() -> None:
    before = runs(1e-3, 1)
    assert not [*explain_incomparable(before, runs(2e-3, 2))]
    (reason,) = explain_incomparable(before, runs(3.0, 2))
    assert "from run to run" in reason


A, B = ProbeAnswer((1, 2), (-0.1, -0.7)), ProbeAnswer((1, 3), (-0.1, -0.7))


def once(*answers: ProbeAnswer, further: tuple[ProbeAnswer, ...] = ()) -> Behaviour:
    """A behaviour of one probe: the answers of its runs, and those to further asks."""
    probe: Probe = ("serving", 0)
    return settle({"serving": [[one] for one in answers]}, (), {probe: further})


def test_another_token_in_a_few_answers_may_be_a_close_call() -> None:
    pin, later = once(A, A, A), once(B, B, B)
    assert moved_probes(pin, later) == ()
    (reason,) = explain_incomparable(pin, later)
    assert "another token at 1, which chance may do in 3 and 3 answers" in reason
    assert "verify" in reason


def test_a_parted_probe_is_asked_until_the_answer_comes_again_or_never_does() -> None:
    pin, later = once(A, A, A), once(B, B, B)
    assert probes_to_ask(later, None) == ()
    assert probes_to_ask(later, pin) == (("serving", 0),)
    came = once(B, B, B, further=(B,) * 8 + (A,))
    assert probes_to_ask(came, pin) == ()
    assert moved_probes(pin, came) == ()
    assert not [*explain_incomparable(pin, came)]
    never = once(B, B, B, further=(B,) * 35)
    assert probes_to_ask(never, pin) == ()
    assert [one.token for one in moved_probes(pin, never)] == [1]


def test_a_rare_beginning_tells_nothing_beside_answers_that_came_again() -> None:
    rare = [ProbeAnswer((7, last), (-0.7, -0.7)) for last in (1, 2)]
    pin, later = once(A, A, rare[0], further=(A,) * 8), once(A, A, rare[1], further=(A,) * 8)
    assert parted_probes(pin, later) == ()
    common = once(A, *[rare[0]] * 2, further=(rare[0],) * 8)
    assert [one.token for one in parted_probes(common, once(A, *[rare[1]] * 20))] == [1]


def test_several_parted_probes_tell_without_a_further_ask() -> None:
    four, others = (settle({"serving": [[one] * 4] * 3}, ()) for one in (A, B))
    assert probes_to_ask(others, four) == ()
    assert len(moved_probes(four, others)) == 4


def test_an_unsteady_probe_is_asked_again_and_its_other_answers_are_kept() -> None:
    assert probes_to_ask(once(A, A, B), None) == (("serving", 0),)
    pin = once(A, A, B, further=(A,) * 8)
    assert probes_to_ask(pin, None) == ()
    assert pin.runs == 3
    assert pin.agreement == pytest.approx(2 / 3)
    again = Behaviour.from_json(pin.as_json())
    assert again.answers("serving", 0) == {A.tokens: 10, B.tokens: 1}
    assert parted_probes(again, once(B, B, B)) == ()


def test_an_older_pin_keeps_one_answer_and_is_read_as_before() -> None:
    data = once(A, A, A).as_json()
    del data["arms"]["serving"][0]["seen"]
    old = Behaviour.from_json(data)
    assert old.answers("serving", 0) == {A.tokens: 3}
    assert old.name == once(A, A, A).name
    # Which answer another one came beside is not kept: it may have been this one.
    unsteady = replace(old, agreement=2 / 3)
    assert unsteady.answers("serving", 0) == {A.tokens: 2}
    (reason,) = explain_incomparable(unsteady, once(B, B, B, further=(B,) * 40))
    assert "pin it again" in reason


@pytest.mark.parametrize("seen", [0, -1, 10**9])
def test_a_pin_that_claims_no_answers_is_nonsense(seen: int) -> None:
    data = once(A, A, A).as_json()
    data["arms"]["serving"][0]["seen"] = seen
    with pytest.raises(ValueError, match="was seen"):
        Behaviour.from_json(data)


@pytest.mark.parametrize("repeat", [0.05, 0.2])
def test_an_engine_with_close_calls_behaves_as_it_did(repeat: float) -> None:
    shaking = np.random.default_rng(1)
    for _ in range(20):
        engine = noisy_probes(repeat, shaking)
        pin, _ = engine.look(shaking)
        after, _ = engine.look(shaking, pin)
        assert moved_probes(pin, after) == ()
        changed = replace(engine, replaced={("serving", n): 8 for n in range(2)})
        later, _ = changed.look(shaking, pin)
        assert {("serving", 0), ("serving", 1)} & {
            (one.arm, one.probe) for one in moved_probes(pin, later)
        }


@pytest.mark.parametrize(
    "claimed",
    [
        {"runs": -1}, {"runs": 10**9}, {"agreement": -5.0}, {"agreement": 5.0},
        {"agreement": math.inf}, {"agreement": math.nan}, {"noise": math.inf}, {"noise": -1.0},
        {"arms": {"serving": [{"tokens": [1], "logprobs": [-1e308]}]}},
        {"arms": {"serving": [{"tokens": [-1], "logprobs": [-1.0]}]}},
        {"arms": {"serving": [{"tokens": [1], "logprobs": [-1.0]}] * 101}},
        {"arms": {"serving": [{"tokens": [1] * 1025, "logprobs": []}]}},
        {"arms": {f"a{n}": [] for n in range(9)}},
    ],
    ids=lambda claimed: str(claimed)[:60],
)  # fmt: skip
def test_a_pin_that_claims_what_cannot_be_is_nonsense(claimed: dict[str, Any]) -> None:
    data = settle({"serving": [[ProbeAnswer((1,), (-0.5,))]] * 3}, ()).as_json()
    assert Behaviour.from_json(data)
    with pytest.raises(ValueError, match="is not between"):
        Behaviour.from_json(data | claimed)


def test_lost_agreement_is_told_of_the_largest_pins_that_there_may_be() -> None:
    once = {f"a{n}": (ProbeAnswer((1,), (-0.1,)),) * 100 for n in range(8)}
    pins = [Behaviour(once, 100, agreement, 0.0) for agreement in (0.5, 0.4)]
    began = time.process_time()
    assert explain_lost_agreement(*pins)
    assert time.process_time() - began < 30.0


def test_the_chance_of_lost_agreement_is_fishers() -> None:
    def chance(before: int, after: int) -> float:
        ways = (math.comb(before + after, n) * math.comb(96 - before - after, 48 - n)
                for n in range(after, min(before + after, 48) + 1))  # fmt: skip
        return sum(ways) / math.comb(96, 48)

    once = {"serving": (ProbeAnswer((1,), (-0.1,)),) * 16}
    for before in range(0, 48, 5):
        for after in range(48):
            sides = (Behaviour(once, 3, 1 - apart / 48, 0.0) for apart in (before, after))
            assert (explain_lost_agreement(*sides) is None) == (chance(before, after) > 0.001)
