"""A trial ends by itself: kept when better, taken back otherwise."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.parameters import TrialParameters
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.trial_verdict import Trial, look_pairs, plan_pairs
from specdeck.engine.protocol.tuning import Interval

SHORT = TrialParameters(baseline_s=10.0, seconds=10.0)


def begin(engine: Any, *, lease_s: float | None = None, seed: int = 1, **given: Any) -> Trial:
    """A trial with the change in force."""
    parameters = given.pop("parameters", SHORT)
    trial = Trial(parameters, t=engine.t, lease_s=lease_s, random=Random(seed), **given)
    assert trial.begin() == "apply"
    return trial


def run(trial: Trial, engine: Any, text: str, before: int, after: int) -> list[str]:
    """Drives a change of k from `before` to `after`, in force already; the actions asked for."""
    actions: list[str] = []
    k = after
    while not trial.over:
        seen = engine.step(text, 4, k)
        for action in (trial.tick(seen.t), trial.step(seen)):
            if action is not None:
                actions.append(action)
                k = after if action in ("apply", "keep") else before
    return actions


@pytest.mark.parametrize(
    ("text", "before", "after", "end"),
    [
        ("predictable", 1, 5, "keep"),
        ("hard", 0, 4, "revert"),
        ("middling", 2, 2, "revert"),
    ],
)
def test_better_is_kept_worse_and_unclear_are_taken_back(
    text: str, before: int, after: int, end: str, engine: Any
) -> None:
    trial = begin(engine)
    *turns, last = run(trial, engine, text, before, after)
    assert last == end
    assert set(turns) == {"apply", "withdraw"}
    assert all(one != other for one, other in pairwise(turns))
    comparison = trial.comparison
    assert comparison is not None
    expected = {"keep": "better"}.get(end, "worse" if before != after else "inconclusive")
    assert comparison.verdict == expected
    assert trial.reason == str(comparison)


def test_a_clear_answer_ends_it_early_and_an_unclear_one_takes_all_pairs(engine: Any) -> None:
    clear, unclear = begin(engine), begin(engine)
    run(clear, engine, "predictable", 1, 5)
    run(unclear, engine, "middling", 2, 2)
    assert clear.pairs == look_pairs(clear.pairs_planned)[0] < clear.pairs_planned
    assert unclear.pairs == unclear.pairs_planned


def test_an_engine_that_gets_faster_by_itself_speaks_for_no_change(engine: Any) -> None:
    """A time before against a time after would call each of these better."""
    verdicts = []
    for seed in range(20):
        trial = begin(engine, seed=seed)
        engine.slowdown = 1.3
        while not trial.over:
            engine.slowdown *= 0.9995
            trial.step(engine.step("middling", 4, 2))
        assert trial.comparison is not None
        verdicts.append(trial.comparison.verdict)
    assert verdicts.count("inconclusive") >= 17, verdicts


def test_both_settings_get_as_much_work_as_was_asked_for(engine: Any) -> None:
    trial = begin(engine, parameters=TrialParameters(baseline_s=5.0, seconds=20.0))
    worked = {"changed": 0.0, "baseline": 0.0}
    while not trial.over:
        seen, phase = engine.step("middling", 4, 2), trial.state
        trial.step(seen)
        worked[phase] += seen.seconds
    assert 20.0 < worked["changed"] < 26.0
    assert 5.0 < worked["baseline"] < 8.0


def test_steps_after_a_turn_are_not_counted(engine: Any) -> None:
    """They verify drafts of the other setting: slow ones here change no figure."""
    trial, since = begin(engine), 0
    while not trial.over:
        seen, turns = engine.step("middling", 4, 2), trial.turns
        trial.step(seen._replace(seconds=seen.seconds * (30 if since < 3 else 1)))
        since = 0 if trial.turns != turns else since + 1
    assert trial.comparison is not None
    true = engine.rate("middling", 4, 2)
    assert trial.comparison.before_tokens_per_second == pytest.approx(true, rel=0.05)
    assert trial.comparison.after_tokens_per_second == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "slow", "pairs"),
    [(40.0, False, 16), (40.0, True, 8), (5.0, False, 10), (0.5, True, 5), (86400.0, False, 960)],
)
def test_pairs_fit_into_the_time(seconds: float, slow: bool, pairs: int) -> None:
    parameters = TrialParameters(baseline_s=86400.0, seconds=86400.0).lasting(seconds)
    assert plan_pairs(parameters, slow=slow) == pairs


def test_tokens_that_got_slower_take_longer_in_words_and_not_by_a_sign(engine: Any) -> None:
    trial = begin(engine)
    run(trial, engine, "hard", 0, 4)
    assert trial.comparison is not None
    assert trial.comparison.ms_per_token.value > 0
    text = str(trial.comparison)
    assert text.startswith("worse: tokens/s -")
    wait = trial.comparison.ms_per_token
    assert text.endswith(wait.of_time())
    assert " % longer (" in wait.of_time()


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((-0.27, -0.505, 0.077), "27.0 % shorter (7.7 % longer to 50.5 % shorter)"),
        ((0.1, -0.05, 0.25), "10.0 % longer (5.0 % shorter to 25.0 % longer)"),
        ((-0.1, -0.2, 0.0), "10.0 % shorter (0.0 to 20.0)"),
        ((0.0, -0.1, 0.1), "0.0 % shorter (10.0 % longer to 10.0 % shorter)"),
    ],
)
def test_the_interval_of_a_time_is_in_the_sense_of_its_word(
    interval: tuple[float, float, float], words: str
) -> None:
    assert Interval(*interval).of_time() == words


def test_the_interval_holds_the_true_gain(engine: Any) -> None:
    trial = begin(engine)
    run(trial, engine, "middling", 1, 3)
    assert trial.comparison is not None
    gain = trial.comparison.tokens_per_second
    true = engine.rate("middling", 4, 3) / engine.rate("middling", 4, 1) - 1
    assert gain.low - 0.02 < true < gain.high + 0.02


def test_unclear_is_kept_when_asked(engine: Any) -> None:
    parameters = TrialParameters(baseline_s=10.0, seconds=10.0, keep_inconclusive=True)
    assert run(begin(engine, parameters=parameters), engine, "middling", 2, 2)[-1] == "keep"


def test_a_lease_that_is_not_renewed_takes_the_change_back(engine: Any) -> None:
    trial, began = begin(engine, lease_s=3.0), engine.t
    assert run(trial, engine, "predictable", 1, 5)[-1] == "revert"
    assert engine.t - began < 3.2
    assert trial.reason == "the lease was not renewed"


def test_a_lease_ends_without_any_traffic() -> None:
    trial = Trial(SHORT, t=0.0, lease_s=15.0)
    trial.begin()
    assert trial.tick(14.0) is None
    assert trial.tick(15.0) == "revert"
    assert trial.tick(99.0) is None


def test_a_long_lease_ends_on_an_engine_that_nobody_looked_at() -> None:
    trial = Trial(TrialParameters(seconds=7200.0), t=0.0, lease_s=3600.0)
    trial.begin()
    assert trial.tick(3600.0) == "revert"


def test_a_renewed_lease_lets_it_finish(engine: Any) -> None:
    trial, k = begin(engine, lease_s=8.0), 5
    while not trial.over:
        seen = engine.step("predictable", 4, k)
        trial.renew(seen.t, 8.0)
        assert trial.tick(seen.t) is None
        k = {"apply": 5, "withdraw": 1}.get(trial.step(seen) or "", k)
    assert trial.state == "kept"


def test_an_engine_that_idles_does_not_hold_a_trial_open() -> None:
    trial = Trial(SHORT, t=0.0, lease_s=None)
    trial.begin()
    assert trial.tick(39.0) is None
    assert trial.tick(41.0) == "revert"
    assert trial.reason == "too little traffic to compare"


def test_a_short_trial_of_long_steps_is_judged() -> None:
    trial = Trial(TrialParameters().lasting(4.0), t=0.0, lease_s=None)
    trial.begin()
    now = 0.0
    while not trial.over:
        now += 0.5
        trial.tick(now)
        trial.step(Step(0, now, 2, 8, 3, 2, 6, 0, 0.5, 2))
    assert trial.comparison is not None, trial.reason
    assert now > 24.0  # its 20 stints, and three steps after each turn


def test_a_clock_set_back_does_not_prolong_it(engine: Any) -> None:
    trial = Trial(SHORT, t=1000.0, lease_s=15.0)
    trial.begin()
    assert trial.tick(1010.0) is None
    assert trial.tick(-1e6) is None
    assert trial.tick(-1e6 + 5.1) == "revert"


def test_cancelled_before_the_change_there_is_nothing_to_take_back(engine: Any) -> None:
    trial = Trial(SHORT, t=engine.t, lease_s=None)
    assert trial.step(engine.step("middling", 4, 2)) is None
    assert trial.cancel("ana changed k") == "abandon"
    assert trial.cancel("again") is None
    assert trial.reason == "ana changed k"


@given(st.lists(st.sampled_from(["step", "slow", "tick", "late", "renew", "cancel"]), max_size=80))
def test_an_end_comes_once_and_turns_come_by_turns(events: list[str]) -> None:
    trial = Trial(TrialParameters(baseline_s=5.0, seconds=5.0), t=0.0, lease_s=30.0)
    now, actions = 0.0, [trial.begin()]
    for event in events:
        now += 20.0 if event == "late" else 1.0
        if event in ("step", "slow"):
            action = trial.step(Step(0, now, 2, 8, 3, 2, 6, 0, 1.0, 2))
        elif event == "renew":
            trial.renew(now, 30.0)
            action = None
        elif event == "cancel":
            action = trial.cancel("by hand")
        else:
            action = trial.tick(now)
        actions += [action] if action else []
        assert (trial.seconds_left is None) == trial.over
    turns = actions[:-1] if trial.over else actions
    assert turns == ["apply" if number % 2 == 0 else "withdraw" for number in range(len(turns))]
    assert trial.over == (actions[-1] in ("keep", "revert"))
