"""A day of seconds saved and lost, by the minute."""

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
