"""Looks at a live engine over time: what moved meanwhile, and what could not be read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from tests.support.http_engine import serve_engine
from tests.support.simulated_traffic import Traffic
from tests.support.suffering_engine import SufferingEngine

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.errors import Stalled, Unsupported
from specdeck.engine.protocol.messages import PREFIX
from specdeck.engine.why.evidence import Baseline, Evidence
from specdeck.engine.why.gather import Progress, gather


@pytest.fixture
def engine() -> Iterator[SufferingEngine]:
    with serve_engine(SufferingEngine(Traffic(1))) as engine:
        yield engine


class Clock:
    """Passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def look(
    engine: SufferingEngine, seconds: float, baseline: Baseline | None = None
) -> tuple[list[Progress], Evidence]:
    client, clock = open_client(engine.url), Clock()
    told = [
        event
        async for event in gather(
            client, seconds=seconds, baseline=baseline, clock=clock, sleep=clock.sleep
        )
    ]
    await client.close()
    *progress, evidence = told
    assert isinstance(evidence, Evidence)
    return [one for one in progress if isinstance(one, Progress)], evidence


async def test_what_happened_between_the_first_look_and_the_last_is_judged(
    engine: SufferingEngine,
) -> None:
    engine.traffic.run(30)
    before = engine.traffic.tell().sum_finished()
    progress, evidence = await look(engine, 24.0)
    assert progress[0].seconds == 0.0
    assert progress[-1].seconds == 24.0
    assert progress[-1].requests == evidence.span.total.requests
    assert len(evidence.series) == 12
    whole = engine.traffic.tell().sum_finished()
    assert evidence.span.total.drafts < whole.drafts - before.drafts
    assert sum(span.total.drafts for span in evidence.series) == evidence.span.total.drafts
    assert evidence.spread.tokens is not None
    assert evidence.steps
    assert evidence.preemptions == 0
    assert dict(evidence.missing).keys() == {"tuning"}


async def test_a_life_before_the_look_is_a_baseline_when_it_is_long_enough(
    engine: SufferingEngine,
) -> None:
    _, evidence = await look(engine, 24.0)
    assert evidence.baseline is None
    engine.traffic.run(120)
    _, evidence = await look(engine, 24.0)
    assert evidence.baseline is not None
    assert evidence.baseline.source == "life"


async def test_no_time_at_all_has_the_whole_life_judged(engine: SufferingEngine) -> None:
    engine.traffic.run(60)
    engine.pace_s = 0.1
    _, evidence = await look(engine, 4.0)
    assert not evidence.since_start
    assert evidence.span.total.requests < 100
    _, evidence = await look(engine, 0.0)
    assert evidence.since_start
    assert evidence.span.total.requests > 200
    assert evidence.series == ()


async def test_a_restart_meanwhile_begins_the_look_anew(engine: SufferingEngine) -> None:
    client, clock = open_client(engine.url), Clock()
    number = 0
    async for event in gather(client, seconds=60.0, clock=clock, sleep=clock.sleep):
        number += 1
        if number == 4:
            engine.traffic = Traffic(2)
            engine.instance = "two"
        if isinstance(event, Evidence):
            assert event.span.total.requests > 0
            assert len(event.series) < 12
            assert all(span.total.drafts >= 0 for span in event.series)
    await client.close()


@pytest.mark.parametrize("at", [3, 12])
async def test_a_core_that_is_late_loses_no_look(engine: SufferingEngine, at: int) -> None:
    client, clock, cohorts = open_client(engine.url), Clock(), f"{PREFIX}/cohorts"
    known, number = engine.answers[cohorts], 0
    async for event in gather(client, seconds=60.0, clock=clock, sleep=clock.sleep):
        engine.answers[cohorts] = LATE if number == at else known
        number += 1
        if isinstance(event, Evidence):
            assert event.span.total.requests > 100
    await client.close()


async def test_a_core_that_is_not_heard_of_any_more_ends_the_look(engine: SufferingEngine) -> None:
    client, clock = open_client(engine.url), Clock()

    async def look_on() -> None:
        async for event in gather(client, seconds=600.0, clock=clock, sleep=clock.sleep):
            assert isinstance(event, Progress)
            engine.answers[f"{PREFIX}/cohorts"] = LATE

    with pytest.raises(Stalled):
        await look_on()
    assert clock() == 100.0 + 50.0 + 30.0
    await client.close()


LATE = (503, {"error": {"code": "stalled", "message": "late", "remedy": None}})


async def test_an_engine_without_cohorts_says_so(engine: SufferingEngine) -> None:
    refusal = {"error": {"code": "unsupported", "message": "older", "remedy": None}}
    engine.answers[f"{PREFIX}/cohorts"] = (501, refusal)
    with pytest.raises(Unsupported):
        await look(engine, 4.0)


async def test_what_cannot_be_read_is_named_and_the_rest_is_told(engine: SufferingEngine) -> None:
    for path in ("steps", "requests", "facts"):
        engine.answers[f"{PREFIX}/{path}"] = lambda _: httpx.Response(404)
    _, evidence = await look(engine, 24.0)
    assert evidence.steps == ()
    assert evidence.spread.tokens is None
    assert {"steps", "requests", "facts"} <= dict(evidence.missing).keys()


async def test_a_look_that_is_given_up_asks_no_more(engine: SufferingEngine) -> None:
    client, has_begun = open_client(engine.url), asyncio.Event()

    async def forever() -> None:
        async for _ in gather(client, seconds=3600.0):
            has_begun.set()

    task = asyncio.create_task(forever())
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    asked = len(engine.asked)
    await asyncio.sleep(0.2)
    assert len(engine.asked) == asked
    await client.close()
