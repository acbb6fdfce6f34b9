"""Policy and breaker together, step by step."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.parameters import BreakerParameters, Catalogue, GoodputParameters
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import BUCKETS


def goodput() -> PolicyRunner:
    known = Estimates(5)
    return PolicyRunner(
        Goodput(GoodputParameters(), known, k=5),
        known,
        breaker=Breaker(BreakerParameters(), known),
    )


def test_without_a_breaker_a_fixed_k_is_never_left(engine: Any) -> None:
    runner = PolicyRunner(Fixed(3, k_max=5), Estimates(5), breaker=None)
    ks = set()
    engine.drive(runner, "hard", 4, 30, lambda seen: ks.add(seen.k))
    assert ks == {3}


def test_with_a_breaker_target_only_is_measured_beside_a_fixed_k(engine: Any) -> None:
    known = Estimates(5)
    runner = PolicyRunner(Fixed(3, k_max=5), known, breaker=Breaker(BreakerParameters(), known))
    ks: list[int] = []
    engine.drive(runner, "predictable", 4, 30, lambda seen: ks.append(seen.k))
    assert set(ks) == {0, 3}
    assert ks.count(0) < 0.05 * len(ks)


def test_a_method_that_cannot_skip_a_round_is_never_told_to(engine: Any) -> None:
    known = Estimates(5)
    runner = PolicyRunner(
        Goodput(GoodputParameters(min_draft_length=1), known, k=5),
        known,
        breaker=Breaker(BreakerParameters(), known),
        zero=False,
    )
    ks = set()
    engine.drive(runner, "hard", 4, 20, lambda seen: ks.add(seen.k))
    assert 0 not in ks


def test_target_only_is_measured_where_goodput_may_not_choose_it(engine: Any) -> None:
    known = Estimates(5)
    breaker = Breaker(BreakerParameters(), known)
    policy = Goodput(GoodputParameters(min_draft_length=2), known, k=5)
    runner = PolicyRunner(policy, known, breaker=breaker)
    engine.drive(runner, "predictable", 8, 10)
    assert known.times.steps(known.bucket, 0) > 0
    engine.drive(runner, "hard", 8, 4)
    assert breaker.view().opened == 1


def test_the_ledger_tells_gain_from_loss(engine: Any) -> None:
    for text, sign in (("predictable", 1), ("hard", -1)):
        known = Estimates(5)
        # A floor of loss that nothing reaches: the breaker measures but does not act.
        breaker = Breaker(BreakerParameters(loss=1.0, acceptance_floor=None), known)
        runner = PolicyRunner(Fixed(3, k_max=5), known, breaker=breaker)
        engine.drive(runner, text, 8, 30)
        balance = runner.ledger.over(3600, now=known.now)
        expected = engine.rate(text, 8, 3) / engine.rate(text, 8, 0) - 1
        assert balance.gain is not None
        assert balance.gain * sign > 0
        assert abs(balance.gain - expected) < 0.06 * (1 + expected)


def test_the_ledger_has_the_seconds_at_soft_zero(engine: Any) -> None:
    known = Estimates(5)
    runner = PolicyRunner(Fixed(0, k_max=5), known, breaker=None)
    engine.drive(runner, "predictable", 8, 20)
    assert runner.ledger.over(3600, now=known.now).saved_s == 0
    found = runner.ledger.over(3600, now=known.now, soft_cost=0.25)
    assert found.speculating_s == 0
    assert found.target_only_s == pytest.approx(20, rel=0.05)
    assert found.gain == pytest.approx(-0.2)


def test_nothing_that_changes_is_the_same_object(engine: Any) -> None:
    runner = goodput()
    engine.drive(runner, "predictable", 8, 20)
    decisions: list[int] = []
    engine.drive(runner, "predictable", 8, 20, lambda _: decisions.append(id(runner.decision)))
    changes = sum(a != b for a, b in pairwise(decisions))
    assert changes < 0.03 * len(decisions)


def test_a_new_policy_knows_what_the_old_one_learned(engine: Any) -> None:
    known = Estimates(5)
    breaker = Breaker(BreakerParameters(), known)
    runner = PolicyRunner(Fixed(5, k_max=5), known, breaker=breaker)
    engine.drive(runner, "hard", 8, 2)
    runner.switch(Goodput(GoodputParameters(), known, k=5))
    engine.drive(runner, "hard", 8, 1)
    assert runner.decision.k(8) <= 1


steps = st.builds(
    Step,
    step=st.integers(0, 10**9),
    tokens=st.integers(0, 20_000),
    t=st.floats(-1e6, 1e6),
    requests=st.integers(1, 4000),
    k=st.integers(0, 5),
    verified=st.integers(0, 5),
    settled=st.booleans(),
    seconds=st.none() | st.floats(0, 1e4),
    committed=st.integers(0, 10_000),
    drafts=st.integers(0, 4000),
    drafted=st.integers(0, 20_000),
    accepted=st.integers(0, 20_000),
    accepted_per_position=st.tuples(*[st.integers(0, 4000)] * 5),
    prefill=st.integers(0, 8192),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=50))
def test_no_step_however_odd_stops_it_or_leads_it_out_of_range(seen: list[Step]) -> None:
    runner = goodput()
    for step in seen:
        table = runner.choose(step).table
        assert len(table) == BUCKETS
        assert all(0 <= k <= 5 for k in table)
    runner.breaker.view()


def test_a_step_costs_less_than_thirty_microseconds(engine: Any) -> None:
    runner = goodput()
    costs: list[float] = []
    seen: list[Step] = []
    engine.drive(runner, "middling", 8, 30, seen.append)
    fresh = goodput()
    for step in seen:
        start = time.perf_counter()
        fresh.choose(step)
        costs.append(time.perf_counter() - start)
    assert statistics.median(costs) < 30e-6


@pytest.mark.parametrize("name", ["fixed", "threshold", "goodput"])
def test_a_fresh_engine_survives_a_prompt_that_takes_many_steps(name: Any) -> None:
    catalogue = Catalogue()
    runner = PolicyRunner.watching(catalogue, k=3, k_max=3, zero=True, wall=lambda: 0.0)
    runner.follow(name, k=3, catalogue=catalogue)
    for number in range(1, 600):
        part = Step(number, number * 0.05, 1, 2049, 3, 0, 0, 0, 0.05, 0, (0,) * 3, 2048, 3, True)
        runner.step(part, steering=True)
    assert runner.estimates.times.version > 0
    assert runner.estimates.prompt_cost(0) >= 0.0
