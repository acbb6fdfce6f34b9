"""Clients that send anything: what one of them does stays his own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.engine_core import Clock, FakeCore, good_step, make_control

from specdeck.engine.plugin import endpoint as module
from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.endpoint import SpecdeckEndpoint
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import (
    IN_RESPONSES_VARIABLE,
    PREFIX,
    TOKEN_FILE_VARIABLE,
    TOKEN_HEADER,
    Change,
    EngineState,
)
from specdeck.engine.protocol.tuning import Tuning

fastapi = pytest.importorskip("fastapi")

TOKEN = {TOKEN_HEADER: "t"}
TEXT = st.text(st.characters())  # half surrogate pairs among them
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PARAMETERS = st.dictionaries(
    st.sampled_from(["threshold.max_draft_length", "goodput.margin", "breaker.automatic"]) | TEXT,
    JSON,
    max_size=3,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(Change.__dataclass_fields__, JSON),
        "k": st.integers(-1, 7) | JSON,
        "reason": TEXT,
        "who": TEXT,
        "parameters": PARAMETERS | JSON,
    },
)


@dataclass
class Server:
    """An API server over a control, and what the control was asked."""

    client: httpx.AsyncClient
    control: Control
    asked: list[tuple[str, Any]]

    async def put(self, content: Any, headers: dict[str, str] = TOKEN) -> httpx.Response:
        return await self.client.put(f"{PREFIX}/control", content=content, headers=headers)

    async def get(self, name: str) -> httpx.Response:
        return await self.client.get(f"{PREFIX}/{name}")

    async def require_sound(self) -> None:
        """Everybody else can still read everything."""
        state, tuning, facts, steps = [
            await self.get(name) for name in ("state", "tuning", "facts", "steps")
        ]
        assert [one.status_code for one in (state, tuning, facts, steps)] == [200] * 4
        assert EngineState.from_json(state.json()).k_max == 5
        assert Tuning.from_json(tuning.json()).policy
        assert max(len(one.content) for one in (state, tuning, facts)) < 32_000
        for one in (state, tuning, facts, steps):
            one.content.decode().encode()
            json.dumps(one.json(), ensure_ascii=False).encode()


Serving = Callable[[FakeCore], Awaitable[Server]]


@pytest.fixture
async def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    """Starts an API server over a core."""
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(token))
    monkeypatch.setenv(IN_RESPONSES_VARIABLE, "0")
    monkeypatch.setattr(module, "system_fingerprint", lambda config: "vllm-0.32.0-09d54272")
    clients: list[httpx.AsyncClient] = []

    async def start(core: FakeCore) -> Server:
        control, asked = make_control(core, Clock()), list[tuple[str, Any]]()

        async def call(_: str, command: str, payload: str) -> list[str]:
            asked.append((command, json.loads(payload)))
            return [json.dumps(control.answer(command, json.loads(payload)))]

        cores = SimpleNamespace(
            engine_core=SimpleNamespace(call_utility_all_async=call),
            vllm_config=SimpleNamespace(
                parallel_config=SimpleNamespace(data_parallel_size=1),
                speculative_config=SimpleNamespace(num_speculative_tokens=5),
                model_config=SimpleNamespace(served_model_name="demo"),
            ),
        )
        app, endpoint = fastapi.FastAPI(), SpecdeckEndpoint()
        endpoint.attach_router(app)
        await endpoint.init_state(cores, None, SimpleNamespace(port=8000))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://engine"))
        return Server(clients[-1], control, asked)

    yield start
    for client in clients:
        await client.aclose()


@pytest.fixture
async def server(serve: Serving) -> Server:
    """One for all examples: what poisons it is found by a later one."""
    return await serve(FakeCore())


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(BODIES | JSON, min_size=10, max_size=25))
async def test_no_body_is_an_error_of_the_server(server: Server, bodies: list[Any]) -> None:
    for body in bodies:
        answer = await server.put(json.dumps(body))
        assert answer.status_code in (200, 400, 409, 501), answer.text
        assert len(answer.content) < 8_000
    await server.require_sound()


@pytest.mark.parametrize(
    "body",
    [
        '{"k": 3, "reason": "\\ud800"}',
        '{"k": 3, "who": "\\udfff"}',
        '{"k": 3, "origin": "\\ud800"}',
        '{"k": 3, "reason": "%s"}' % ("x" * 501),
        '{"k": 3, "reason": "%s"}' % ("x" * 10_000_000),
        '{"k": %s}' % ("9" * 4200),
        '{"parameters": {"threshold.max_draft_length": %s}}' % ("9" * 4200),
        '{"parameters": {"goodput.margin": 1e999}}',
        '{"parameters": {"goodput.margin": NaN}}',
        '{"k": ' + "[" * 30_000 + "]" * 30_000 + "}",
        '{"\\ud800": 1}',
        '{"parameters": {"\\ud800": 1}}',
    ],
    ids=range(12),
)
async def test_nonsense_is_a_400_and_leaves_no_trace(serve: Serving, body: str) -> None:
    server = await serve(FakeCore())
    before = server.control.state()
    answer = await server.put(body)
    assert (answer.status_code, answer.json()["error"]["code"]) in (
        (400, "invalid"),
        (400, "parameter"),
    )
    assert server.control.state() == before
    await server.require_sound()


@pytest.mark.parametrize("headers", [{}, {TOKEN_HEADER: "wrong"}, {TOKEN_HEADER: "\xff"}])
async def test_without_the_token_no_byte_of_a_body_is_read(
    serve: Serving, headers: dict[str, str]
) -> None:
    server, sent = await serve(FakeCore()), 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 65_536

    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    request = server.client.build_request(
        "PUT", f"{PREFIX}/control", content=endless(), headers=encoded
    )
    answer = await server.client.send(request)
    assert (answer.status_code, sent) == (401, 0)


async def test_with_it_an_endless_body_is_read_up_to_its_bound(serve: Serving) -> None:
    server, sent = await serve(FakeCore()), 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 1024

    answer = await server.put(endless())
    assert (answer.status_code, sent) == (400, 65)


async def test_the_core_tells_each_step_once_however_many_ask_for_all(serve: Serving) -> None:
    told = 0

    class Working(FakeCore):
        ring = tuple(good_step(number, 4) for number in range(1, 1001))

        def steps(self, since: int, most: int) -> list[Step]:
            nonlocal told
            found = [step for step in self.ring if step.step > since][:most]
            told += len(found)
            return found

    core = Working()
    server = await serve(core)
    for since in (0, 0, 990, -5, 10**30):
        answer = await server.client.get(f"{PREFIX}/steps?since={since}")
        found = tuple(Step.from_json(step) for step in answer.json()["steps"])
        assert found == core.ring[max(0, since) :]
    assert told == 1000
    assert (await server.client.get(f"{PREFIX}/steps?since=x")).status_code == 422


async def test_looks_at_the_core_follow_from_time_and_not_from_who_asks(serve: Serving) -> None:
    server = await serve(FakeCore())
    server.asked.clear()
    began = time.monotonic()
    answers = await asyncio.gather(*(server.get("tuning") for _ in range(100)))
    assert {one.status_code for one in answers} == {200}
    assert len(server.asked) <= 2 + (time.monotonic() - began) / module.TUNING_GAP_S
