"""Answers of a server that lies: neither their length nor their pace is up to it."""

from __future__ import annotations

import httpx
import pytest
from tests.support.lying_engine import Lie, LyingEngine, drip, hang, head, reply

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.errors import Unreachable


def impatient(url: str) -> EngineClient:
    """A client that waits 0.2 s for an answer."""
    http = httpx.AsyncClient(base_url=url, timeout=5.0)
    return EngineClient(http, url=url, timeout_s=0.2)


async def test_what_is_no_lie_is_answered_honestly() -> None:
    with LyingEngine({"/version": reply({"version": "9"})}) as engine:
        asked = open_client(engine.url)
        assert await asked.version() == "9"
        assert (await asked.state()).k == 5
        assert await asked.models() == ("demo",)
        await asked.close()
    assert [one.path for one in engine.asked] == ["/version", "/v1/specdeck/state", "/v1/models"]


@pytest.mark.parametrize("lie", [drip(reply("x" * 10_000), every_s=0.05), hang(), hang(head())])
async def test_an_answer_has_a_time_in_all(lie: Lie) -> None:
    with (
        LyingEngine({"/metrics": lie}) as engine,
        pytest.raises(Unreachable, match="gave no answer"),
    ):
        await impatient(engine.url).page()
