"""Five hundred windows in which nothing is wrong: at most one in a hundred raises an alarm."""

from __future__ import annotations

import pytest
from tests.support.simulated_traffic import Request, Traffic

from specdeck.engine.why.evidence import read_spread
from specdeck.engine.why.ranking import diagnose

WINDOWS = 500
_BY_SEED = 25


def alarms(first: int) -> list[tuple[int, str]]:
    """What is raised in windows of some seeds; every other one is compared with a baseline."""
    found: list[tuple[int, str]] = []
    for seed in range(first, first + _BY_SEED):
        traffic = Traffic(seed, rate=8.0)
        baseline = None
        if seed % 2:
            baseline = traffic.run(24, pieces=3).as_baseline()
            traffic.forget()
        traffic.run(24)
        evidence = traffic.evidence(baseline)
        found += [(seed, cause.name) for cause in diagnose(evidence).causes]
    return found


@pytest.mark.parametrize("part", range(4))
def test_honest_windows_raise_no_more_than_one_alarm_in_a_hundred(part: int) -> None:
    share = WINDOWS // 4
    raised = [alarm for first in range(part * share, (part + 1) * share, _BY_SEED)
              for alarm in alarms(first)]  # fmt: skip
    assert len(raised) <= share // 100 + 1, raised


def test_a_spread_holds_what_requests_differ_by() -> None:
    """The trials of a total are no more than what its variance over many runs says."""
    rates, trials = [], []
    for seed in range(60):
        traffic = Traffic(seed, rate=4.0, draw=lambda random: Request(64, output=48))
        traffic.run(20, pieces=1)
        total = traffic.evidence().span.total
        spread = read_spread(traffic.lines)
        found = spread.trials(total)
        rates.append(found.rate)
        trials.append(found.of)
    mean = sum(rates) / len(rates)
    variance = sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)
    assert mean * (1 - mean) / variance > 0.7 * sum(trials) / len(trials)
