"""Acceptance that is lower because drafts are deeper is no fall."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.listed_history import ListedHistory
from tests.support.readings import START
from tests.support.recorded_engine import busy_sample, look_at

from specdeck.engine.blackbox.falls import Fall, list_falls
from specdeck.engine.blackbox.gaps import list_falls_across, measure_coverage
from specdeck.engine.incident.slides import find_slide
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample

SECONDS, CHANGE, K_MAX = 400, 200, 8
DRAFTS = 50.0
"""In a second."""


def record_drafts(
    k: Callable[[int], int],
    accept: Callable[[int], float] = lambda n: 0.7,
    *,
    tells: tuple[bool, bool] = (True, True),
    speed: Callable[[int], float] = lambda n: 1.0,
    gap: range = range(0),
) -> list[Reading]:
    """An engine whose drafts have so many tokens, and so many of each accepted where those before
    it were.

    It `tells` accepted and drafted tokens by position, and does not answer in `gap`.
    """
    drafts, generated = 0.0, 0.0
    accepted, drafted = [0.0] * K_MAX, [0.0] * K_MAX
    looks: list[tuple[Sample | None, None]] = []
    for n in range(SECONDS):
        made = DRAFTS * speed(n)
        drafts += made
        for place in range(k(n)):
            drafted[place] += made
            accepted[place] += made * accept(n) ** (place + 1)
        generated = drafts + sum(accepted)
        sample = busy_sample(
            n, generated=generated, drafts=drafts, drafted=sum(drafted), accepted=sum(accepted),
            accepted_per_position=tuple(accepted) if tells[0] else None,
            drafted_per_position=tuple(drafted) if tells[1] else None,
        )  # fmt: skip
        looks.append((None if n in gap else sample, None))
    return look_at(looks)


def find(readings: list[Reading]) -> list[Fall]:
    return list(list_falls(ListedHistory(readings), START, START + SECONDS))


@pytest.mark.parametrize("tells", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize(("was", "now"), [(1, 5), (3, 8), (2, 7)])
def test_a_k_that_was_raised_is_no_fall(was: int, now: int, tells: tuple[bool, bool]) -> None:
    def k(n: int) -> int:
        return was if n < CHANGE else now

    raised = find(record_drafts(k, tells=tells))
    worse = find(record_drafts(k, lambda n: 0.7 if n < CHANGE else 0.2, tells=tells))
    assert raised == []
    assert [one.figure for one in worse] == ["acceptance"]


@pytest.mark.parametrize("now", [5, 3])
def test_acceptance_that_falls_at_the_same_k_or_a_smaller_one_is_a_fall(now: int) -> None:
    readings = record_drafts(
        lambda n: 5 if n < CHANGE else now, lambda n: 0.7 if n < CHANGE else 0.2
    )
    assert [one.figure for one in find(readings)] == ["acceptance"]


def test_speed_that_deeper_drafts_cost_is_a_fall_of_the_speed() -> None:
    found = find(
        record_drafts(lambda n: 1 if n < CHANGE else 8, speed=lambda n: 1.0 if n < CHANGE else 0.3)
    )
    assert [one.figure for one in found] == ["tokens_per_second"]


@pytest.mark.parametrize(("accept", "falls"), [(0.7, 0), (0.2, 1)])
def test_a_k_that_was_raised_while_nothing_was_recorded_is_no_fall_either(
    accept: float, falls: int
) -> None:
    readings = record_drafts(
        lambda n: 2 if n < CHANGE else 8,
        lambda n: 0.7 if n < CHANGE else accept,
        gap=range(CHANGE - 40, CHANGE + 20),
    )
    coverage = measure_coverage(iter(readings), START, START + SECONDS)
    found = list_falls_across(ListedHistory(readings), coverage)
    assert len([one for one in found if one.figure == "acceptance"]) == falls


@pytest.mark.parametrize(("accept", "slides"), [(0.7, False), (0.2, True)])
def test_a_k_that_goes_up_step_by_step_is_no_slide(accept: float, slides: bool) -> None:
    readings = record_drafts(
        lambda n: min(K_MAX, 1 + n // 50), lambda n: 0.7 + (accept - 0.7) * n / SECONDS
    )
    history = ListedHistory(readings)
    found = find_slide(history, "acceptance", START, START + SECONDS, [])
    assert (found is not None) is slides
