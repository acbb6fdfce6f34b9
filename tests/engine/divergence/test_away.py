"""A check of an engine whose core does not answer for a while."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.retry import Retry, Waiting
from specdeck.engine.divergence.arms import soft
from specdeck.engine.errors import Unreachable

STALLED = {"code": "stalled", "message": "the engine core has not answered for 4 s"}


class Clock:
    """Nobody waits for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def hear(self, waiting: Waiting) -> None:
        self.said.append(waiting.line())

    def retry(self, seconds: float) -> Retry:
        return Retry(seconds, on_notice=self.hear, sleep=self.sleep, clock=lambda: self.now)


def stalled(bench: Any, clock: Clock, path: str, seconds: float) -> httpx.MockTransport:
    """An engine whose core is silent until `seconds`, with 4 of them for each question."""
    engine = bench.engine()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith(path) and clock.now < seconds:
            clock.now += 4.0
            return httpx.Response(503, json={"error": STALLED})
        found: httpx.Response = await engine(request)
        return found

    return httpx.MockTransport(answer)


@pytest.mark.parametrize("path", ["/state", "/facts"])
async def test_a_core_that_stalls_in_the_set_up_is_waited_for(bench: Any, path: str) -> None:
    clock = Clock()
    asking = open_client("http://engine", transport=stalled(bench, clock, path, 20.0))
    serving, _ = await soft(asking, None, clock.retry(60.0))
    await asking.close()
    assert serving.facts.details == {"vllm": "0.32.0"}
    assert serving.facts.k == 5
    assert clock.said == [f"{STALLED['message']}: waiting for it up to 60 s"]


async def test_the_wait_for_a_core_ends_with_the_patience(bench: Any) -> None:
    clock = Clock()
    asking = open_client("http://engine", transport=stalled(bench, clock, "/state", 1e9))
    with pytest.raises(Unreachable, match="has not answered"):
        await soft(asking, None, clock.retry(60.0))
    await asking.close()
    assert 55.0 < clock.now <= 64.0


async def test_an_address_without_an_engine_is_told_at_once() -> None:
    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    clock = Clock()
    asking = open_client("http://engine", transport=httpx.MockTransport(refused))
    with pytest.raises(Unreachable):
        await soft(asking, None, clock.retry(60.0))
    await asking.close()
    assert (clock.now, clock.said) == (0.0, [])
