from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import aclosing
from itertools import count

import httpx
import pytest

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.errors import (
    BadPage,
    NoReply,
    NotAnEngine,
    Unauthorized,
    Unreachable,
    Unsupported,
)
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.scrape import Scraper, readings
from specdeck.engine.protocol.messages import EngineState

Pages = Callable[[str], str]
State = Callable[..., EngineState]
Part = str | int | Exception | EngineState
"""A body, a status, a failure, or a state."""


def engine(looks: list[tuple[Part, Part]], asked: list[str] | None = None) -> EngineClient:
    """An engine whose page and state are as listed, one pair for each look."""
    pages, states = (iter(column) for column in zip(*looks, strict=True))

    def answer(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(request.url.path)
        part = next(pages if request.url.path == "/metrics" else states)
        if isinstance(part, Exception):
            raise part
        if isinstance(part, int):
            return httpx.Response(part)
        if isinstance(part, EngineState):
            return httpx.Response(200, json=part.as_json())
        return httpx.Response(200, text=part)

    return open_client("http://engine", transport=httpx.MockTransport(answer))


def ticking() -> Callable[[], float]:
    """A clock that goes on by a second each time it is asked."""
    moments: Iterator[int] = count(1)
    return lambda: float(next(moments))


async def looks(
    *parts: tuple[Part, Part], clock: Callable[[], float] | None = None
) -> list[Reading]:
    scraper = Scraper(engine(list(parts)), clock=clock or ticking(), wall=lambda: 1000.0)
    return [await scraper.read() for _ in parts]


def reborn(page: str) -> str:
    return re.sub(r"(?m)^process_start_time_seconds .*$", "process_start_time_seconds 2e9", page)


async def test_the_second_look_has_a_window(page: Pages, state: State) -> None:
    first, second = await looks(
        (page("speculative"), state()), (page("speculative-busy"), state(k=3))
    )
    assert first.window is None
    assert first.up
    assert second.window is not None
    assert second.window.draft_tokens_per_draft == 5.0
    assert (second.state, second.error, second.control_error) == (state(k=3), None, None)
    assert not second.restarted


async def test_an_outage_is_a_reading_and_closes_the_window(page: Pages, state: State) -> None:
    gone = httpx.ConnectError("refused")
    same = (page("speculative"), state())
    _, out, back, on = await looks(same, (gone, gone), same, same)
    assert isinstance(out.error, Unreachable)
    assert (out.sample, out.window, out.state) == (None, None, None)
    assert (back.window, back.restarted) == (None, False)
    assert on.window is not None


async def test_a_restart_across_an_outage_is_noticed(page: Pages, state: State) -> None:
    gone = httpx.ConnectError("refused")
    _, _, back, on = await looks(
        (page("speculative"), 404),
        (gone, gone),
        (reborn(page("speculative-busy")), 404),
        (reborn(page("speculative-busy")), 404),
    )
    assert (back.restarted, back.window) == (True, None)
    assert not on.restarted
    assert on.window is not None


async def test_another_instance_is_a_restart(page: Pages, state: State) -> None:
    first = (page("speculative"), state())
    _, second = await looks(first, (page("speculative-busy"), state(instance="two")))
    assert (second.restarted, second.window) == (True, None)


async def test_a_restart_is_told_once_though_the_plugin_comes_later(
    page: Pages, state: State
) -> None:
    _, second, third = await looks(
        (page("speculative"), state()),
        (reborn(page("speculative")), 503),
        (reborn(page("speculative-busy")), state(instance="two")),
    )
    assert (second.restarted, third.restarted) == (True, False)


async def test_counters_that_fell_are_a_restart(page: Pages, state: State) -> None:
    _, second = await looks((page("speculative-busy"), state()), (page("speculative"), state()))
    assert (second.restarted, second.window) == (True, None)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (httpx.ReadTimeout(""), NoReply),
        ("<html>", NotAnEngine),
        ("vllm:generation_tokens_total{} 1.", BadPage),
        (401, Unauthorized),
    ],
)
async def test_every_failure_is_a_reading(part: Part, kind: type[Exception], state: State) -> None:
    (reading,) = await looks((part, state()))
    assert type(reading.error) is kind
    assert not reading.up


async def test_a_stopped_engine_says_for_how_long_it_was_silent() -> None:
    (reading,) = await looks((httpx.ReadTimeout(""), httpx.ReadTimeout("")))
    assert "no answer for 5 s" in str(reading.error)


async def test_a_missing_plugin_is_asked_for_every_ten_seconds(page: Pages) -> None:
    asked: list[str] = []
    now = [0.0]
    scraper = Scraper(
        engine([(page("speculative"), 404)] * 25, asked), clock=lambda: now[0], wall=lambda: 0.0
    )
    for second in range(25):
        now[0] = float(second)
        reading = await scraper.read()
        assert isinstance(reading.control_error, Unsupported)
        assert reading.state is None
    assert len([path for path in asked if path.endswith("/state")]) == 3


async def test_after_an_outage_the_plugin_is_asked_at_once(page: Pages, state: State) -> None:
    gone = httpx.ConnectError("refused")
    parts: list[tuple[Part, Part]] = [
        (page("speculative"), 404),
        (gone, state()),
        (reborn(page("speculative")), 200),
    ]
    now = iter(range(100))
    scraper = Scraper(engine(parts), clock=lambda: next(now) * 1e-3, wall=lambda: 0.0)
    await scraper.read()
    await scraper.read()
    assert (await scraper.read()).state == state()


async def test_a_plugin_that_is_silent_for_a_moment_costs_no_window(
    page: Pages, state: State
) -> None:
    _, second, third = await looks(
        (page("speculative"), state()), (page("speculative"), 503), (page("speculative"), state())
    )
    assert second.window is not None
    assert isinstance(second.control_error, Unreachable)
    assert third.control_error is None


async def test_an_engine_without_a_page_keeps_its_plugins_word(page: Pages, state: State) -> None:
    text, one, other = page("speculative"), state(instance="a"), state(instance="b")
    found = await looks((text, one), (500, one), (500, other), (text, other), (500, 500))
    assert [(one.up, one.state, one.unmeasured, one.restarted) for one in found] == [
        (True, one, None, False),
        (False, None, one, False),
        (False, None, other, True),
        (True, other, None, False),
        (False, None, None, False),
    ]


async def test_looks_keep_their_rhythm_whatever_they_take(page: Pages) -> None:
    now, slept = [0.0], []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/metrics":
            return httpx.Response(404)
        now[0] += costs.pop(0)
        return httpx.Response(200, text=page("speculative"))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    costs = [0.25, 0.5, 3.25, 0.0, 1.0, 0.0]
    source = open_client("http://engine", transport=httpx.MockTransport(answer))
    starts: list[float] = []
    async with aclosing(
        readings(source, every=1.0, clock=lambda: now[0], wall=lambda: 0.0, sleep=sleep)
    ) as stream:
        async for _ in stream:
            starts.append(now[0])
            if not costs:
                break
    assert slept == [0.75, 0.5, 0.75, 1.0, 1.0]
    assert starts == [0.25, 1.5, 5.25, 6.0, 8.0, 9.0]


async def test_a_look_that_hangs_can_be_cancelled() -> None:
    reached = asyncio.Event()

    async def hang(_: httpx.Request) -> httpx.Response:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    source = open_client("http://engine", transport=httpx.MockTransport(hang))
    task = asyncio.ensure_future(Scraper(source).read())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await source.close()
