"""Policy and breaker together, step by step."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specdeck.engine.policy.batches import BUCKETS
from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.policy.parameters import Breaker as BreakerParameters
from specdeck.engine.policy.parameters import Goodput as GoodputParameters
from specdeck.engine.policy.pilot import Pilot


def goodput() -> Pilot:
    known = Experience(5)
    return Pilot(
        Goodput(GoodputParameters(), known, k=5),
        known,
        breaker=Breaker(BreakerParameters(), known),
    )


def test_without_a_breaker_a_fixed_k_is_never_left(engine: Any) -> None:
    pilot = Pilot(Fixed(3, k_max=5), Experience(5), breaker=None)
    ks = set()
    engine.drive(pilot, "hard", 4, 30, lambda seen: ks.add(seen.k))
    assert ks == {3}


def test_with_a_breaker_target_only_is_measured_beside_a_fixed_k(engine: Any) -> None:
    known = Experience(5)
    pilot = Pilot(Fixed(3, k_max=5), known, breaker=Breaker(BreakerParameters(), known))
    ks: list[int] = []
    engine.drive(pilot, "predictable", 4, 30, lambda seen: ks.append(seen.k))
    assert set(ks) == {0, 3}
    assert ks.count(0) < 0.05 * len(ks)


def test_a_method_that_cannot_skip_a_round_is_never_told_to(engine: Any) -> None:
    known = Experience(5)
    pilot = Pilot(
        Goodput(GoodputParameters(min_draft_length=1), known, k=5),
        known,
        breaker=Breaker(BreakerParameters(), known),
        zero=False,
    )
    ks = set()
    engine.drive(pilot, "hard", 4, 20, lambda seen: ks.add(seen.k))
    assert 0 not in ks


def test_target_only_is_measured_where_goodput_may_not_choose_it(engine: Any) -> None:
    known = Experience(5)
    breaker = Breaker(BreakerParameters(), known)
    policy = Goodput(GoodputParameters(min_draft_length=2), known, k=5)
    pilot = Pilot(policy, known, breaker=breaker)
    engine.drive(pilot, "predictable", 8, 10)
    assert known.times.measured(known.bucket, 0) > 0
    engine.drive(pilot, "hard", 8, 4)
    assert breaker.view().opened == 1


def test_the_ledger_tells_gain_from_loss(engine: Any) -> None:
    for text, sign in (("predictable", 1), ("hard", -1)):
        known = Experience(5)
        # A floor of loss that nothing reaches: the breaker measures but does not act.
        breaker = Breaker(BreakerParameters(loss=1.0, acceptance_floor=None), known)
        pilot = Pilot(Fixed(3, k_max=5), known, breaker=breaker)
        engine.drive(pilot, text, 8, 30)
        balance = pilot.ledger.over(3600, now=known.now)
        expected = engine.rate(text, 8, 3) / engine.rate(text, 8, 0) - 1
        assert balance.gain is not None
        assert balance.gain * sign > 0
        assert abs(balance.gain - expected) < 0.06 * (1 + expected)


def test_nothing_that_changes_is_the_same_object(engine: Any) -> None:
    pilot = goodput()
    engine.drive(pilot, "predictable", 8, 20)
    decisions: list[int] = []
    engine.drive(pilot, "predictable", 8, 20, lambda _: decisions.append(id(pilot.decision)))
    changes = sum(a != b for a, b in pairwise(decisions))
    assert changes < 0.03 * len(decisions)


def test_a_new_policy_knows_what_the_old_one_learned(engine: Any) -> None:
    known = Experience(5)
    breaker = Breaker(BreakerParameters(), known)
    pilot = Pilot(Fixed(5, k_max=5), known, breaker=breaker)
    engine.drive(pilot, "hard", 8, 2)
    pilot.follow(Goodput(GoodputParameters(), known, k=5))
    engine.drive(pilot, "hard", 8, 1)
    assert pilot.decision.k(8) <= 1


steps = st.builds(
    StepSeen,
    t=st.floats(-1e6, 1e6),
    requests=st.integers(1, 4000),
    k=st.integers(0, 5),
    verified=st.integers(0, 5),
    settled=st.booleans(),
    seconds=st.none() | st.floats(0, 1e4),
    committed=st.integers(0, 10_000),
    drafts=st.integers(0, 4000),
    drafted=st.integers(0, 20_000),
    accepted=st.tuples(*[st.integers(0, 4000)] * 5),
    prefill=st.integers(0, 8192),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=50))
def test_no_step_however_odd_stops_it_or_leads_it_out_of_range(seen: list[StepSeen]) -> None:
    pilot = goodput()
    for step in seen:
        table = pilot.step(step).table
        assert len(table) == BUCKETS
        assert all(0 <= k <= 5 for k in table)
    assert pilot.breaker is not None
    pilot.breaker.view()


def test_a_step_costs_less_than_thirty_microseconds(engine: Any) -> None:
    pilot = goodput()
    costs: list[float] = []
    seen: list[StepSeen] = []
    engine.drive(pilot, "middling", 8, 30, seen.append)
    fresh = goodput()
    for step in seen:
        start = time.perf_counter()
        fresh.step(step)
        costs.append(time.perf_counter() - start)
    assert statistics.median(costs) < 30e-6
