"""A day of seconds saved and lost, by the minute."""

import pytest

from specdeck.engine.policy.ledger import DAY_MINUTES, Ledger


def test_an_hour_forgets_what_a_day_remembers() -> None:
    ledger = Ledger()
    for minute in range(3 * DAY_MINUTES):
        ledger.add(minute * 60.0, saved_s=1.0, speculating_s=10.0)
    now = 3 * DAY_MINUTES * 60.0 - 1
    assert ledger.over(3600, now=now).saved_s == 60
    assert ledger.over(86400, now=now).saved_s == DAY_MINUTES
    assert ledger.over(10 * 86400, now=now).saved_s <= DAY_MINUTES + 1


def test_a_clock_set_back_loses_nothing() -> None:
    ledger = Ledger()
    ledger.add(7200.0, saved_s=1.0, speculating_s=2.0)
    ledger.add(60.0, saved_s=1.0, speculating_s=2.0)
    assert ledger.over(3600, now=7200.0).saved_s == 2.0


def test_against_an_engine_without_speculation_the_sign_can_be_another() -> None:
    """vLLM users measured soft k = 0 up to 22 % a step slower than no speculation."""
    ledger = Ledger()
    ledger.add(0.0, saved_s=10.0, speculating_s=100.0)
    assert ledger.over(3600, now=0.0).saved_s == 10.0
    found = ledger.over(3600, now=0.0, soft_cost=0.22)
    # 110 s of soft k = 0 are 110 / 1.22 s without speculation.
    assert found.saved_s == pytest.approx(110 / 1.22 - 100)
    assert found.saved_s < 0


def test_time_at_soft_zero_is_lost_against_an_engine_without_speculation() -> None:
    ledger = Ledger()
    ledger.add(0.0, saved_s=0.0, speculating_s=0.0, target_only_s=110.0)
    soft = ledger.over(3600, now=0.0)
    assert (soft.saved_s, soft.target_only_s, soft.gain) == (0.0, 0.0, None)
    hard = ledger.over(3600, now=0.0, soft_cost=0.1)
    assert hard.saved_s == pytest.approx(-10.0)
    assert hard.target_only_s == 110.0
    assert hard.gain == pytest.approx(-10 / 110)


def test_a_cost_that_is_measured_later_holds_for_what_was_entered_before() -> None:
    ledger = Ledger()
    ledger.add(0.0, saved_s=10.0, speculating_s=100.0, target_only_s=55.0)
    ledger.add(60.0, saved_s=10.0, speculating_s=100.0, target_only_s=55.0)
    twice = ledger.over(3600, now=60.0, soft_cost=0.1)
    assert twice.saved_s == pytest.approx(2 * (110 / 1.1 - 100 + 55 / 1.1 - 55))
