"""What is told beside readings: alerts of checks, and what the webhook gets, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.fingerprints import Fingerprints, NamedEngine
from tests.support.little_memory import limit_memory

from specdeck.engine.client.secret import Secret
from specdeck.engine.client.webhook import Webhook
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.pins import PinFile, write_pin
from specdeck.engine.metrics.window import Window
from specdeck.engine.operations.alerts import Alert, Limits, LimitUnwatched
from specdeck.engine.operations.drift import Drift, DriftWatcher, FactsRead
from specdeck.engine.operations.watches import (
    CHECKS_APART_S,
    MOST_WAITING,
    EngineWatch,
    NotJudged,
    NotPosted,
    WatchEvent,
    list_finished,
)
from specdeck.engine.store.checks import Checks, Run
from specdeck.engine.store.database import Store

fingerprint = Fingerprints().seen
URL = fingerprint().url


@pytest.fixture
def engine() -> NamedEngine:
    return NamedEngine(fingerprint())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def check(store: Path, t: float, mismatches: int, *, of: int = 200, verdict: str = "pass") -> None:
    """A check that ended at `t`."""
    with Store(store) as opened:
        checks = Checks(opened)
        run = checks.begin(f"key-{t}", t - 1, URL, {})
        checks.finish(run.id, t, {"mismatches": mismatches, "prompts": of, "verdict": verdict})


def watching(
    engine: NamedEngine,
    tmp_path: Path,
    limits: Limits,
    *,
    webhook: Webhook | None = None,
    finished: Callable[[], Sequence[Run]] = tuple,
) -> EngineWatch:
    drift = DriftWatcher(engine.fetch, PinFile(lambda: tmp_path / "demo.json"))
    return EngineWatch(URL, drift, limits, webhook=webhook, finished_checks=finished)


async def take(watch: EngineWatch, engine: NamedEngine, t: float, **more: Any) -> list[WatchEvent]:
    reading = engine.reading(t, **more)
    if not watch.take(reading):
        return []
    return [event async for event in watch.events(reading) if not isinstance(event, FactsRead)]


async def test_a_check_that_ends_while_somebody_watches_raises_and_clears_an_alert(
    engine: NamedEngine, tmp_path: Path, store: Path
) -> None:
    limits = Limits(mismatch_max=0.015)
    watch = watching(engine, tmp_path, limits, finished=lambda: list_finished(store, URL))
    check(store, 5.0, 20)  # of before: whoever made it was told
    assert await take(watch, engine, 10.0) == []
    assert await take(watch, engine, 10.0 + 2 * CHECKS_APART_S) == []
    check(store, 35.0, 12)
    assert await take(watch, engine, 31.0) == []  # not looked at so soon
    (raised,) = await take(watch, engine, 50.0)
    assert raised == Alert("mismatch_max", 35.0, URL, True, 0.06, 0.015, 200)
    assert await take(watch, engine, 70.0) == []
    check(store, 80.0, 11)
    assert await take(watch, engine, 90.0) == []
    check(store, 92.0, 0, verdict="inconclusive")
    assert await take(watch, engine, 100.0) == []
    check(store, 95.0, 0)
    (cleared,) = await take(watch, engine, 110.0)
    assert isinstance(cleared, Alert)
    assert not cleared.is_raised


async def test_a_check_that_began_before_another_and_ends_after_it_raises_an_alert(
    engine: NamedEngine, tmp_path: Path, store: Path
) -> None:
    finished = partial(list_finished, store, URL)
    watch = watching(engine, tmp_path, Limits(mismatch_max=0.015), finished=finished)
    await take(watch, engine, 10.0)
    with Store(store) as opened:
        long = Checks(opened).begin("long", 11.0, URL, {})
    check(store, 15.0, 0)
    assert await take(watch, engine, 30.0) == []
    with Store(store) as opened:
        found = {"mismatches": 40, "prompts": 200, "verdict": "fail"}
        Checks(opened).finish(long.id, 35.0, found)
    (raised,) = await take(watch, engine, 50.0)
    assert isinstance(raised, Alert)
    assert (raised.is_raised, raised.t) == (True, 35.0)
    assert await take(watch, engine, 70.0) == []


async def test_a_check_that_no_memory_is_left_to_judge_is_told(
    engine: NamedEngine, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(mismatch_max=0.015)
    watch = watching(engine, tmp_path, limits, finished=lambda: list_finished(store, URL))
    await take(watch, engine, 10.0)
    check(store, 35.0, 12)
    limit_memory(monkeypatch)
    (found,) = await take(watch, engine, 50.0)
    assert isinstance(found, NotJudged)
    assert found.line.startswith("a check is not held against mismatch_max: statistics require")


async def test_without_a_limit_no_check_is_looked_at(engine: NamedEngine, tmp_path: Path) -> None:
    looks = list[int]()

    def finished() -> tuple[Run, ...]:
        looks.append(1)
        return ()

    watch = watching(engine, tmp_path, Limits(acceptance_floor=0.5), finished=finished)
    for t in (0.0, 100.0):
        await take(watch, engine, t)
    assert looks == []


def test_a_new_store_has_no_check(tmp_path: Path, store: Path) -> None:
    assert list_finished(store, URL) == ()
    assert list_finished(tmp_path / "missing" / "store.sqlite", URL) == ()


async def test_a_store_that_cannot_be_read_for_a_while_makes_no_old_check_new(
    engine: NamedEngine, tmp_path: Path, store: Path
) -> None:
    check(store, 5.0, 100)
    is_held = False

    def finished() -> tuple[Run, ...]:
        if is_held:
            raise SpecdeckError("the store is held by another process")
        return list_finished(store, URL)

    watch = watching(engine, tmp_path, Limits(mismatch_max=0.015), finished=finished)
    assert await take(watch, engine, 10.0) == []
    is_held = True
    assert await take(watch, engine, 10.0 + 2 * CHECKS_APART_S) == []
    is_held = False
    assert await take(watch, engine, 10.0 + 4 * CHECKS_APART_S) == []
    for begun in (100.0, 1000.0):  # that it cannot be read is said once, until it could be
        is_held = True
        told = [one for n in range(20) for one in await take(watch, engine, begun + 20.0 * n)]
        line = "no check is held against mismatch_max: the store is held by another process"
        assert [one.line for one in told if isinstance(one, NotJudged)] == [line]
        is_held = False
        assert await take(watch, engine, begun + 500.0) == []


def low(t: float) -> dict[str, Any]:
    return {"window": Window(1.0, drafts=500.0, drafted=2000.0, accepted=100.0)}


async def test_the_webhook_gets_drifts_and_alerts_each_of_its_kind(
    engine: NamedEngine, tmp_path: Path
) -> None:
    posted: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        posted.append(json.loads(request.content))
        return httpx.Response(204 if len(posted) < 3 else 404)

    webhook = Webhook(Secret("https://hooks.example/x"), transport=httpx.MockTransport(answer))
    watch = watching(engine, tmp_path, Limits(acceptance_floor=0.5), webhook=webhook)
    write_pin(engine.found, tmp_path / "demo.json")
    assert await take(watch, engine, 0.0) == []
    engine.found = fingerprint(live__k=5)
    alert, drifted = await take(watch, engine, 10.0, **low(10.0))
    assert isinstance(alert, Alert)
    assert isinstance(drifted, Drift)
    assert [(one["kind"], one["event"]) for one in posted] == [
        ("alert", "alert.raised"), ("drift", "fingerprint.drift"),
    ]  # fmt: skip
    engine.found = fingerprint()
    _, failure = await take(watch, engine, 20.0)
    assert failure == NotPosted("the webhook of this drift answered 404")


async def test_the_webhook_gets_a_limit_that_cannot_be_watched(
    engine: NamedEngine, tmp_path: Path
) -> None:
    posted: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        posted.append(json.loads(request.content))
        return httpx.Response(204)

    webhook = Webhook(Secret("https://hooks.example/x"), transport=httpx.MockTransport(answer))
    watch = watching(engine, tmp_path, Limits(acceptance_floor=0.5), webhook=webhook)
    blind = {"window": Window(1.0, drafts=50.0, drafted=200.0)}
    found = [one for t in range(40) for one in await take(watch, engine, float(t), **blind)]
    assert [type(one) for one in found] == [LimitUnwatched]
    (body,) = posted
    assert (body["event"], body["kind"]) == ("alert.unwatched", "alert")
    assert (body["limit"], body["missing"]) == (0.5, ["accepted tokens"])


async def test_an_alert_does_not_wait_for_a_fetch_that_is_under_way(
    engine: NamedEngine, tmp_path: Path
) -> None:
    answered = asyncio.Event()

    async def fetch(pinned: Any) -> Any:
        await answered.wait()
        return engine.found

    drift = DriftWatcher(fetch, PinFile(lambda: tmp_path / "demo.json"))
    watch = EngineWatch(URL, drift, Limits(acceptance_floor=0.5))
    first = asyncio.create_task(take(watch, engine, 0.0))
    await asyncio.sleep(0)
    (alert,) = await take(watch, engine, 1.0, **low(1.0))
    assert isinstance(alert, Alert)
    answered.set()
    assert await first == []


async def test_a_webhook_that_is_behind_has_few_wait_for_it(
    engine: NamedEngine, tmp_path: Path
) -> None:
    answers, posted = asyncio.Event(), list[bytes]()

    async def answer(request: httpx.Request) -> httpx.Response:
        posted.append(request.content)
        await answers.wait()
        return httpx.Response(204)

    webhook = Webhook(Secret("https://hooks.example/x"), transport=httpx.MockTransport(answer))
    watch = watching(engine, tmp_path, Limits(), webhook=webhook)
    told = list[NotPosted]()

    async def post(n: int) -> None:
        flap = Alert("acceptance_floor", float(n), URL, n % 2 == 0, 0.4, 0.5, 200)
        told.extend([failure async for failure in watch.post([flap])])

    tasks = [asyncio.create_task(post(n)) for n in range(200)]
    await asyncio.wait_for(asyncio.gather(*tasks[MOST_WAITING:]), 30.0)
    assert told == [NotPosted("the webhook is behind: what comes now is not posted")]
    answers.set()
    await asyncio.gather(*tasks)
    assert len(posted) == MOST_WAITING
    assert told[1:] == [NotPosted(f"not posted, as the webhook was behind: {200 - MOST_WAITING}")]
    await post(201)
    assert len(posted) == MOST_WAITING + 1
    assert len(told) == 2
