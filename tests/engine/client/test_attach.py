from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from specdeck.engine.client.attach import AttachedEngine, MonitoredEngine, UnopenedClient, attach
from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.errors import StartFailed, Unauthorized, Unsupported, UsageError
from specdeck.engine.metrics.reading import Gpu
from specdeck.engine.protocol.messages import Change, EngineState

LOCAL, REMOTE = "http://127.0.0.1:8000", "http://gpu-1:8000"
GPU = Gpu(0, "H100", 0.4, 1, 2, 350.0)
Pages = Callable[[str], str]
State = Callable[..., EngineState]


def never(_: httpx.Request) -> httpx.Response:
    raise AssertionError("the engine was asked")


def of(
    answer: Callable[[httpx.Request], httpx.Response] = never,
    *,
    url: str = LOCAL,
    token: str | None = "secret",
    **more: Any,
) -> AttachedEngine:
    source = open_client(
        url,
        token=lambda: Secret(token) if token else None,
        transport=httpx.MockTransport(answer),
    )
    return AttachedEngine(source, **more)


def name_of(engine: MonitoredEngine) -> str:
    return engine.name


async def test_an_engine_is_called_by_its_address_unless_it_has_a_name() -> None:
    assert name_of(of()) == "127.0.0.1:8000"
    assert name_of(of(name="demo")) == "demo"


async def test_a_refused_token_makes_it_read_only_again() -> None:
    asked: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(401, json={"error": "wrong token"})

    engine = of(refuse)
    engine.arm()
    with pytest.raises(Unauthorized):
        await engine.client.put(Change(k=3))
    assert not engine.armed
    with pytest.raises(Unsupported, match="read-only"):
        await engine.client.put(Change(k=3))
    assert len(asked) == 1


@pytest.mark.parametrize("status", [200, 400, 401])
async def test_a_token_is_tried_without_a_change(status: int) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(
            status, json={"error": {"code": "nonsense", "message": "no change", "remedy": None}}
        )

    engine = of(answer)
    with pytest.raises(Unsupported, match="read-only"):
        await engine.client.try_token()
    engine.arm()
    if status == 401:
        with pytest.raises(Unauthorized):
            await engine.client.try_token()
    else:
        await engine.client.try_token()
    assert engine.armed is (status != 401)
    assert [json.loads(request.content) for request in asked] == [{}]


async def test_a_client_is_opened_when_the_engine_is_first_asked() -> None:
    opened: list[EngineClient] = []

    def open_once() -> EngineClient:
        assert not opened
        opened.append(open_client(LOCAL, transport=httpx.MockTransport(never)))
        return opened[0]

    engine = AttachedEngine(UnopenedClient(LOCAL, lambda: Secret("secret"), open_once))
    engine.arm()
    assert (engine.url, engine.name, engine.local) == (LOCAL, "127.0.0.1:8000", True)
    await engine.close()
    assert not opened
    engine.armed = False
    for _ in range(2):
        with pytest.raises(Unsupported, match="read-only"):
            await engine.client.put(Change(k=3))
    assert len(opened) == 1
    await engine.close()


async def test_a_change_is_refused_until_armed() -> None:
    engine = of()
    with pytest.raises(Unsupported, match="read-only"):
        await engine.client.put(Change(k=3))
    engine.arm()
    assert engine.armed


async def test_arming_wants_a_token() -> None:
    engine = of(token=None)
    with pytest.raises(Unauthorized, match="no admin token"):
        engine.arm()
    assert not engine.armed


async def test_a_token_that_is_gone_refuses_the_change() -> None:
    with pytest.raises(Unauthorized, match="no admin token"):
        await of(token=None, armed=True).client.put(Change(k=3))


async def test_an_armed_change_reaches_the_engine() -> None:
    reply = {"before": {"k": 5}, "applied": {"k": 3}, "version": 1, "step": 7}
    engine = of(lambda _: httpx.Response(200, json=reply), armed=True)
    assert (await engine.client.put(Change(k=3))).applied == {"k": 3}


@pytest.mark.parametrize(("url", "gpus"), [(LOCAL, (GPU,)), (REMOTE, None)])
async def test_gpus_are_looked_at_beside_a_local_engine_only(
    page: Pages, state: State, url: str, gpus: tuple[Gpu, ...] | None
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            return httpx.Response(200, text=page("speculative"))
        return httpx.Response(200, json=state().as_json())

    engine = of(answer, url=url, gpus=lambda: (GPU,))
    async with aclosing(engine.readings(1.0)) as stream:
        reading = await anext(stream)
    assert reading.gpus == gpus
    assert reading.up
    assert engine.local == (url == LOCAL)


async def test_a_driver_that_is_not_there_is_asked_once(page: Pages) -> None:
    asked: list[int] = []

    def none() -> None:
        asked.append(1)

    engine = of(lambda _: httpx.Response(200, text=page("speculative")), gpus=none)
    async with aclosing(engine.readings(1e-3)) as stream:
        assert (await anext(stream)).gpus is None
        assert (await anext(stream)).gpus is None
    assert asked == [1]


async def test_a_reading_is_taken_before_it_is_due_where_it_is_wanted(page: Pages) -> None:
    engine = of(lambda _: httpx.Response(200, text=page("speculative")), gpus=lambda: None)
    async with aclosing(engine.readings(3600.0)) as stream:
        await anext(stream)
        engine.look()
        async with asyncio.timeout(60.0):
            assert (await anext(stream)).up


async def test_attaching_normalises_the_url_and_asks_nothing() -> None:
    engine = attach("localhost:8000/v1/", name="demo")
    assert (engine.url, engine.armed) == ("http://localhost:8000", False)
    await engine.close()
    with pytest.raises(UsageError):
        attach("http://ana:pw@h:1")
    with pytest.raises(Unauthorized):
        attach("localhost:8000", control=True)


async def test_another_engine_at_the_url_is_not_taken_for_the_one_that_ended() -> None:
    gone = StartFailed("the engine ended: it was ended by SIGKILL")
    engine = of(lambda _: httpx.Response(200, text=""), armed=True, exit_error=lambda: gone)
    async with aclosing(engine.readings(0.0)) as readings:
        reading = await anext(readings)
    assert (reading.up, reading.error) == (False, gone)
    with pytest.raises(StartFailed, match="SIGKILL"):
        await engine.client.put(Change(k=3))
