"""Checks one after another, and the breaker that a failed one opens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from specdeck.engine.client.retry import Retry
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.errors import (
    ConfigError,
    Conflict,
    NoReply,
    SpecdeckError,
    Unreachable,
    UsageError,
)
from specdeck.engine.operations.check import CheckEvent, NotDone, Trip, open_breaker, repeat_checks
from specdeck.engine.protocol.messages import AppliedChange, Change

URL = "http://engine"
DONE = CheckProgress(4, 4, 0, 0, None, None)


class Clock:
    """Nobody waits for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Checks:
    """Takes ten seconds a check, and fails as it is told to."""

    def __init__(self, clock: Clock, *failures: SpecdeckError | None) -> None:
        self._clock = clock
        self._failures = list(failures)

    async def check(self) -> AsyncGenerator[CheckEvent, None]:
        self._clock.now += 10.0
        failure = self._failures.pop(0)
        if failure is not None:
            raise failure
        yield DONE


async def test_a_check_that_cannot_be_done_does_not_end_the_series() -> None:
    clock, away, edited = Clock(), Unreachable("gone"), ConfigError("mine.jsonl:3: no prompt")
    checks = Checks(clock, away, edited, None)
    events: list[object] = []
    series = repeat_checks(checks.check, 60.0, clock=lambda: clock.now, sleep=clock.sleep)
    async with aclosing(series):
        async for event in series:
            events.append(event)
            if event is DONE:
                break
    assert events == [NotDone(away), NotDone(edited), DONE]
    assert clock.pauses == [50.0, 50.0]


async def test_wrong_usage_ends_the_series() -> None:
    clock = Clock()
    checks = Checks(clock, UsageError("--case: there is no prompt 9"))
    with pytest.raises(UsageError):
        await anext(repeat_checks(checks.check, 60.0, clock=lambda: clock.now, sleep=clock.sleep))


async def test_what_reads_as_wrong_usage_later_on_does_not_end_the_series() -> None:
    clock, held = Clock(), UsageError("the store is held by another process")
    checks = Checks(clock, None, held, None)
    series = repeat_checks(checks.check, 60.0, clock=lambda: clock.now, sleep=clock.sleep)
    async with aclosing(series):
        assert [await anext(series) for _ in range(3)] == [DONE, NotDone(held), DONE]


async def opened(*answers: AppliedChange | SpecdeckError) -> tuple[Trip, list[Change]]:
    """What becomes of a trip to which the engine answers so, and what it was asked."""
    clock, left, asked = Clock(), list(answers), list[Change]()

    async def request(change: Change) -> AppliedChange:
        asked.append(change)
        answer = left.pop(0)
        if isinstance(answer, SpecdeckError):
            raise answer
        return answer

    trip = await open_breaker(
        request, url=URL, who="ann", reason="2 of 9 differ",
        retry=Retry(9.0, clock=lambda: clock.now, sleep=clock.sleep),
    )  # fmt: skip
    return trip, asked


OPEN = AppliedChange({"breaker": "closed"}, {"breaker": "open"}, 1, 1)
RESET = f"specdeck set {URL} breaker=closed"


async def test_a_trip_opens_the_breaker_for_the_verdict() -> None:
    trip, (change,) = await opened(OPEN)
    assert trip == Trip("open", RESET)
    assert (change.breaker, change.cause, change.who) == ("open", "divergence", "ann")
    assert change.reason == "specdeck check: 2 of 9 differ"


async def test_an_engine_that_is_away_is_asked_again() -> None:
    trip, asked = await opened(Unreachable("gone"), OPEN)
    assert trip.breaker == "open"
    assert len(asked) == 2


async def test_an_older_plugin_is_asked_without_a_cause() -> None:
    trip, asked = await opened(UsageError("unknown key 'cause'"), OPEN)
    assert trip.breaker == "open"
    assert [change.cause for change in asked] == ["divergence", None]


async def test_a_trip_whose_reply_was_lost_names_what_resets_it() -> None:
    lost = NoReply("closed the connection")
    trip, _ = await opened(*[lost] * 20)
    assert trip == Trip(None, RESET, lost)


async def test_an_engine_that_refuses_is_the_trip_s_error() -> None:
    refusal = Conflict("a trial is on", remedy="wait for its end")
    trip, _ = await opened(refusal)
    assert trip == Trip(None, None, refusal)
    assert trip.as_json() == {
        "breaker": None, "undo": None, "error": "a trial is on: wait for its end",
    }  # fmt: skip
