"""A trial ends by itself: kept when better, taken back otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.parameters import TrialParameters
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.trial_verdict import Trial, Work

SHORT = TrialParameters(baseline_s=10.0, seconds=20.0)


def run(trial: Trial, engine: Any, text: str, before: int, after: int) -> list[str]:
    """Drives a change of k from `before` to `after`; the actions asked for."""
    actions: list[str] = []
    k = before
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
    trial = Trial(SHORT, t=engine.t, lease_s=None)
    assert run(trial, engine, text, before, after) == ["apply", end]
    comparison = trial.comparison
    assert comparison is not None
    expected = {"keep": "better"}.get(end, "worse" if before != after else "inconclusive")
    assert comparison.verdict == expected
    assert trial.reason == str(comparison)


def test_tokens_that_got_slower_take_longer_in_words_and_not_by_a_sign(engine: Any) -> None:
    trial = Trial(SHORT, t=engine.t, lease_s=None)
    run(trial, engine, "hard", 0, 4)
    assert trial.comparison is not None
    assert trial.comparison.ms_per_token.value > 0
    text = str(trial.comparison)
    assert text.startswith("worse: tokens/s -")
    assert " % longer (+" in text.partition("time per token ")[2]


def test_the_interval_holds_the_true_gain(engine: Any) -> None:
    trial = Trial(SHORT, t=engine.t, lease_s=None)
    run(trial, engine, "middling", 1, 3)
    assert trial.comparison is not None
    gain = trial.comparison.tokens_per_second
    true = engine.rate("middling", 4, 3) / engine.rate("middling", 4, 1) - 1
    assert gain.low - 0.02 < true < gain.high + 0.02


def test_unclear_is_kept_when_asked(engine: Any) -> None:
    trial = Trial(
        TrialParameters(baseline_s=10.0, seconds=20.0, keep_inconclusive=True),
        t=engine.t,
        lease_s=None,
    )
    assert run(trial, engine, "middling", 2, 2)[-1] == "keep"


def test_a_lease_that_is_not_renewed_takes_the_change_back(engine: Any) -> None:
    trial = Trial(SHORT, t=engine.t, lease_s=15.0)
    began = engine.t
    assert run(trial, engine, "predictable", 1, 5) == ["apply", "revert"]
    assert engine.t - began < 15.2
    assert trial.reason == "the lease was not renewed"


def test_a_lease_ends_without_any_traffic() -> None:
    trial = Trial(SHORT, t=0.0, lease_s=15.0)
    assert trial.tick(14.0) is None
    assert trial.tick(15.0) == "abandon"
    assert trial.tick(99.0) is None


def test_a_long_lease_ends_on_an_engine_that_nobody_looked_at() -> None:
    trial = Trial(TrialParameters(seconds=7200.0), t=0.0, lease_s=3600.0)
    assert trial.tick(3599.0) is None
    assert Trial(TrialParameters(seconds=7200.0), t=0.0, lease_s=3600.0).tick(3600.0) == "abandon"


def test_a_renewed_lease_lets_it_finish(engine: Any) -> None:
    trial = Trial(SHORT, t=engine.t, lease_s=8.0)
    k, actions = 1, []
    while not trial.over:
        seen = engine.step("predictable", 4, k)
        trial.renew(seen.t, 8.0)
        assert trial.tick(seen.t) is None
        if action := trial.step(seen):
            actions.append(action)
            k = 5
    assert actions == ["apply", "keep"]


def test_an_engine_that_idles_does_not_hold_a_trial_open() -> None:
    trial = Trial(SHORT, t=0.0, lease_s=None)
    assert trial.tick(54.0) is None
    assert trial.tick(56.0) == "abandon"
    assert trial.reason == "too little traffic to compare"


def test_a_clock_set_back_does_not_prolong_it(engine: Any) -> None:
    trial = Trial(SHORT, t=1000.0, lease_s=15.0)
    assert trial.tick(1010.0) is None
    assert trial.tick(-1e6) is None
    assert trial.tick(-1e6 + 5.1) == "abandon"


def test_cancelled_before_the_change_there_is_nothing_to_take_back(engine: Any) -> None:
    trial = Trial(SHORT, t=engine.t, lease_s=None)
    trial.step(engine.step("middling", 4, 2))
    assert trial.cancel("ana changed k") == "abandon"
    assert trial.cancel("again") is None
    assert trial.reason == "ana changed k"


@given(st.lists(st.sampled_from(["step", "slow", "tick", "late", "renew", "cancel"]), max_size=80))
def test_apply_comes_first_and_an_end_comes_once(events: list[str]) -> None:
    trial = Trial(TrialParameters(baseline_s=5.0, seconds=5.0), t=0.0, lease_s=30.0)
    now, actions = 0.0, []
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
    assert actions in (
        [],
        ["apply"],
        ["abandon"],
        ["apply", "revert"],
        ["apply", "keep"],
    )
    assert trial.over == bool(actions and actions[-1] != "apply")


def test_what_was_measured_already_is_the_time_before(engine: Any) -> None:
    work, began = Work(), engine.t
    while engine.t < began + 11.0:
        work.add(engine.step("predictable", 4, 1))
    trial = Trial(SHORT, t=engine.t, lease_s=None, work=work)
    assert trial.begin() == "apply"
    while not trial.over:
        trial.step(engine.step("predictable", 4, 5))
    assert trial.state == "kept"


def test_work_of_long_ago_is_not_taken_for_the_present(engine: Any) -> None:
    work, began = Work(), engine.t
    while engine.t < began + 11.0:
        work.add(engine.step("predictable", 4, 1))
    engine.t += 600
    for _ in range(20):
        work.add(engine.step("predictable", 4, 1))
    assert not Trial(SHORT, t=engine.t, lease_s=None, work=work).ready
