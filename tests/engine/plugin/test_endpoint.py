"""The routes of the API server's process, over engine cores that answer as they are told."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.plugin import endpoint as module
from specdeck.engine.plugin import request_pins
from specdeck.engine.plugin.endpoint import (
    CPU_GAP_S,
    MOST_BODY,
    PAGE_GAP_S,
    SpecdeckEndpoint,
    parse_json,
    read_json,
)
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.plugin.secret_values import format_values
from specdeck.engine.protocol.cohorts import Cohorts
from specdeck.engine.protocol.messages import (
    EXACT_VARIABLE,
    IN_RESPONSES_VARIABLE,
    LOOKS,
    PREFIX,
    TOKEN_FILE_VARIABLE,
    TOKEN_HEADER,
    Change,
)
from specdeck.engine.protocol.requests import Requests

fastapi = pytest.importorskip("fastapi")

STATE: dict[str, Any] = {
    "instance": "one",
    "version": 0,
    "k": 5,
    "mode": "speculate",
    "fallback": "warm",
    "policy": "goodput",
    "breaker": "closed",
    "step": 7,
    "drafts": 2,
    "drafted_per_position": [2, 1],
    "accepted_per_position": [1, 0],
    "running": 1,
    "waiting": 0,
    "pinned": 0,
    "exact_running": 0,
    "exact_requests": 0,
    "exact_tokens": 0,
    "fingerprint": "sd1:p1",
    "capabilities": [
        {"name": name, "available": able, "reason": reason, "remedy": None}
        for name, able, reason in (
            ("live_k", True, None),
            ("cold", False, "it has no drafter"),
            ("request_k", True, None),
            ("breaker", True, None),
            ("policy.fixed", True, None),
            ("policy.goodput", True, None),
        )
    ],
}
APPLIED = {"before": {"k": 5}, "applied": {"k": 3}, "version": 1, "step": 7}
REFUSED = {"error": {"code": "version", "message": "moved", "remedy": None}, "status": 409}
COHORTS = {
    "instance": "one", "t": 1.0, "k_max": 2, "folded": [],
    "unfinished": [1, 0, 0, 0, *[0, 0, 3, 1, 1, 1]],
    "cells": [["16-63", "0%", "4-15", "none", "none", "greedy", "no", "stop",
               *[2, 40, 16, 0, *[0, 1, 4, 2, 2, 1]]]],
    "drafts": 8, "drafted_per_position": [8, 7], "accepted_per_position": [5, 2],
}  # fmt: skip
"""As an engine core tells them: words, figures, then drafts by length and by accepted tokens."""
LINE = {
    "number": 1, "state": "running", "age_s": 1.0, "prompt_tokens": 9, "output_tokens": 4,
    "k": None, "drafts": 1, "drafted": 5, "accepted": 3, "preemptions": 0, "cached": "0%",
    "adapter": "none", "structured": "none", "temperature": "greedy", "ended": None,
}  # fmt: skip
REQUESTS = {"instance": "one", "t": 1.0, "k": 5, "running": 1, "waiting": 2, "active": [LINE],
            "finished": [{**LINE, "state": "stop", "ended": 1.0}]}  # fmt: skip
ONLY_PINS = ["request_k", "policy.fixed"]
"""What holds where nobody turns k."""


@dataclass
class Cores:
    """Engine cores behind a client, each with an answer of its own to a change."""

    to_changes: tuple[dict[str, Any], ...] = (APPLIED,)
    ranks: int = 1
    changed: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    serving: list[dict[str, Any]] = field(default_factory=list)
    """What the server made of its own files."""

    @property
    def vllm_config(self) -> Any:
        return SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_size=self.ranks),
            speculative_config=SimpleNamespace(num_speculative_tokens=5),
            model_config=SimpleNamespace(served_model_name="demo"),
        )

    @property
    def engine_core(self) -> Any:
        return SimpleNamespace(call_utility_all_async=self.call)

    @property
    def input_processor(self) -> Any:
        return SimpleNamespace(process_inputs=lambda request_id, prompt, params: None)

    async def call(self, method: str, command: str, payload: str) -> list[str]:
        self.asked.append(command)
        if command == "requests":
            return [json.dumps(REQUESTS)] * len(self.to_changes)
        if command == "cohorts":
            return [json.dumps(COHORTS)] * len(self.to_changes)
        if command == "calibrate":
            shape = json.loads(payload)["shape"]
            found = {"instance": "one", "seconds": [0.02], "interrupted": False, "real_s": None}
            return [json.dumps({**found, "batch": shape["batch"], "k": shape["k"]})]
        if command == "serving":
            self.serving.append(json.loads(payload))
        if command == "change":
            self.changed.append(json.loads(payload)["change"])
            return [json.dumps(answer) for answer in self.to_changes]
        return [json.dumps(STATE)] * len(self.to_changes)


Asking = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    """Asks an API server over some cores for the state, or for a change."""
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(token))
    monkeypatch.setenv(IN_RESPONSES_VARIABLE, "0")
    # vLLM's own costs half a minute of imports.
    monkeypatch.setattr(module, "system_fingerprint", lambda config: "vllm-0.32.0-09d54272")

    async def asked(
        cores: Cores, change: Change | None = None, path: str = "state"
    ) -> httpx.Response:
        app, endpoint = fastapi.FastAPI(), SpecdeckEndpoint()
        endpoint.attach_router(app)
        await endpoint.init_state(cores, None, SimpleNamespace(port=8000))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            if change is None:
                return await client.get(f"{PREFIX}/{path}")
            return await client.put(
                f"{PREFIX}/control", json=change.as_json(), headers={TOKEN_HEADER: "t"}
            )

    return asked


async def test_one_engine_is_changed_as_it_is_asked(ask: Asking) -> None:
    cores = Cores()
    answer = await ask(cores, Change(k=3))
    assert (answer.status_code, answer.json()["applied"]) == (200, {"k": 3})
    assert cores.changed == [{"k": 3}]
    state = (await ask(cores)).json()
    assert state["capabilities"] == STATE["capabilities"]


def test_the_routes_that_engines_do_not_log_are_those_that_change_nothing() -> None:
    app = fastapi.FastAPI(openapi_url=None)
    SpecdeckEndpoint().attach_router(app)
    reads = {route.path for route in app.routes if route.methods == {"GET"}}
    assert reads == {f"{PREFIX}/{name}" for name in LOOKS}


@pytest.mark.parametrize(
    ("token", "body", "ranks", "status", "code"),
    [
        ("t", {"batch": 4, "k": 3}, 1, 200, None),
        ("wrong", {"batch": 4, "k": 3}, 1, 401, "admin_token"),
        (None, {"batch": 4, "k": 3}, 1, 401, "admin_token"),
        ("t", {"batch": 0, "k": 3}, 1, 400, "invalid"),
        ("t", {"batch": 4, "k": 3, "prompt": "x"}, 1, 400, "invalid"),
        ("t", {"batch": 4, "k": 3}, 2, 501, None),
    ],
)
async def test_dummy_steps_are_for_whoever_has_the_token(
    ask: Asking, token: str | None, body: dict[str, Any], ranks: int, status: int, code: str | None
) -> None:
    app, endpoint, cores = fastapi.FastAPI(), SpecdeckEndpoint(), Cores(ranks=ranks)
    endpoint.attach_router(app)
    await endpoint.init_state(cores, None, SimpleNamespace(port=8000))
    headers = {} if token is None else {TOKEN_HEADER: token}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://engine"
    ) as client:
        answer = await client.post(f"{PREFIX}/calibrate", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert ("calibrate" in cores.asked) == (status == 200)
    if status == 200:
        assert answer.json()["seconds"] == [0.02]
    elif code:
        assert answer.json()["error"]["code"] == code


async def test_cohorts_are_told_in_words_and_add_up_to_vllms_counters(ask: Asking) -> None:
    answer = await ask(Cores(), path="cohorts")
    assert answer.status_code == 200
    found = Cohorts.from_json(answer.json())
    (cell,) = found.cells
    assert cell.cohort.prompt == "16-63"
    assert cell.counts.drafted_per_position == (5, 4)
    together = [found.sum_finished(), found.unfinished]
    assert sum(each.drafts for each in together) == found.drafts
    for name in ("drafted_per_position", "accepted_per_position"):
        parts = zip(*(getattr(each, name) for each in together), strict=True)
        assert tuple(map(sum, parts)) == getattr(found, name)


async def test_the_cohorts_of_all_ranks_are_one_answer(ask: Asking) -> None:
    one = Cohorts.from_json((await ask(Cores(), path="cohorts")).json())
    both = Cohorts.from_json((await ask(Several((STATE, STATE)), path="cohorts")).json())
    assert [cell.counts.requests for cell in both.cells] == [4]
    assert (both.drafts, both.unfinished.drafts) == (2 * one.drafts, 2 * one.unfinished.drafts)


async def test_cohorts_are_put_into_words_once_a_look_however_many_ask(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[Cohorts] = []
    as_json = Cohorts.as_json

    def counted(told: Cohorts) -> dict[str, Any]:
        put.append(told)
        return as_json(told)

    monkeypatch.setattr(Cohorts, "as_json", counted)
    published: list[Any] = []
    stats = SimpleNamespace(
        publish_cohorts=lambda model, ranks: published.append(ranks),
        publish_cpu_times=lambda model, ranks: None,
    )
    monkeypatch.setitem(sys.modules, "specdeck.engine.plugin.stats", stats)
    monkeypatch.setattr("specdeck.engine.plugin.stats", stats, raising=False)
    cores = Cores()
    app, endpoint = fastapi.FastAPI(), SpecdeckEndpoint()
    endpoint.attach_router(app)
    await endpoint.init_state(cores, None, SimpleNamespace(port=8000))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        paths = [f"{PREFIX}/cohorts"] * 30 + ["/metrics"] * 30
        answers = await asyncio.gather(*(client.get(path) for path in paths))
    assert len({one.text for one in answers[:30]}) == len(put)
    looks = cores.asked.count("cohorts")
    assert len(put) <= looks < 10
    assert 1 <= len(published) <= looks


async def test_metrics_pages_have_the_cohorts_looked_at_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published: list[Any] = []
    stats = SimpleNamespace(
        publish_cohorts=lambda model, ranks: published.append(ranks),
        publish_cpu_times=lambda model, ranks: None,
    )
    monkeypatch.setitem(sys.modules, "specdeck.engine.plugin.stats", stats)
    monkeypatch.setattr("specdeck.engine.plugin.stats", stats, raising=False)
    cores, now = Cores(), [100.0]
    app, endpoint = fastapi.FastAPI(), SpecdeckEndpoint(clock=lambda: now[0])
    endpoint.attach_router(app)
    await endpoint.init_state(cores, None, SimpleNamespace(port=8000))
    transport = httpx.ASGITransport(app)
    looks = []
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        for later in (0.0, 1.0, PAGE_GAP_S - 1.1, 0.2):
            now[0] += later
            for _ in range(3):
                await client.get("/metrics")
            looks.append(cores.asked.count("cohorts"))
    assert looks == [1, 1, 1, 2]
    assert len(published) == 2


async def test_metrics_pages_have_cpu_times_looked_at_once_however_many_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published: list[Any] = []
    stats = SimpleNamespace(
        publish_cohorts=lambda model, ranks: None,
        publish_cpu_times=lambda model, ranks: published.append(ranks),
    )
    monkeypatch.setitem(sys.modules, "specdeck.engine.plugin.stats", stats)
    monkeypatch.setattr("specdeck.engine.plugin.stats", stats, raising=False)

    class Waiting(Cores):
        async def call(self, method: str, command: str, payload: str) -> list[str]:
            if command == "cpu":
                self.asked.append(command)
                return [json.dumps({"cpu": {"watched": 2.0}}), json.dumps({"cpu": None})]
            return await super().call(method, command, payload)

    cores, now = Waiting(), [100.0]
    app, endpoint = fastapi.FastAPI(), SpecdeckEndpoint(clock=lambda: now[0])
    endpoint.attach_router(app)
    await endpoint.init_state(cores, None, SimpleNamespace(port=8000))
    looks = []
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://engine"
    ) as client:
        for later in (0.0, CPU_GAP_S - 0.1, 0.2, 1.0):
            now[0] += later
            await asyncio.gather(*(client.get("/metrics") for _ in range(5)))
            looks.append(cores.asked.count("cpu"))
    assert looks == [1, 1, 2, 3]
    assert published == [[{"watched": 2.0}, {}]] * 3


async def test_requests_are_told_and_those_of_ranks_with_their_rank(ask: Asking) -> None:
    one = Requests.from_json((await ask(Cores(), path="requests")).json())
    assert (one.running, one.waiting, one.active[0].acceptance) == (1, 2, 0.6)
    both = Requests.from_json((await ask(Several((STATE, STATE)), path="requests")).json())
    assert (both.running, both.waiting) == (2, 4)
    assert [line.rank for line in both.active] == [line.rank for line in both.finished] == [0, 1]


async def test_an_engine_that_cannot_tell_cohorts_says_why(ask: Asking) -> None:
    class Older(Cores):
        async def call(self, method: str, command: str, payload: str) -> list[str]:
            if command == "cohorts":
                error = {"code": "cohorts", "message": "vLLM has no _free_request", "remedy": "r"}
                return [json.dumps({"error": error, "status": 501})]
            return await super().call(method, command, payload)

    answer = await ask(Older(), path="cohorts")
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "cohorts")


async def test_a_metrics_page_is_made_after_what_it_is_to_say_and_whatever_becomes_of_that() -> (
    None
):
    calls: list[str] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope.get("path", "life"))

    async def prepare() -> None:
        calls.append("prepared")
        raise RuntimeError("ours")

    served = module.BeforePage(page, prepare)
    for path in ("/metrics", "/root/metrics/", "/v1/completions", "/metricsx"):
        await served({"type": "http", "path": path}, None, None)
    await served({"type": "lifespan"}, None, None)
    assert calls == [
        "prepared", "/metrics", "prepared", "/root/metrics/", "/v1/completions", "/metricsx", "life"
    ]  # fmt: skip


async def test_nonsense_is_a_400_and_never_reaches_the_engine(ask: Asking) -> None:
    cores = Cores()
    answer = await ask(cores, Change(k=-1))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid")
    assert error["message"] == "k requires a whole number from 0 up, not -1"
    assert cores.changed == []


@dataclass
class Several(Cores):
    """Data-parallel ranks, each of which can be asked alone."""

    ranks: int = 2
    reached: int = 2
    told: list[tuple[int, str]] = field(default_factory=list)
    joined: dict[str, Any] = field(default_factory=dict)
    servers: int = 1

    @property
    def engine_core(self) -> Any:
        return SimpleNamespace(
            call_utility_all_async=self.call,
            _call_utility_async=self.call_one,
            core_engines=list(range(self.reached)),
            client_count=self.servers,
        )

    async def call(self, method: str, command: str, payload: str) -> list[str]:
        if command in ("join", "board"):
            self.asked.append(command)
            return [json.dumps({}), json.dumps(self.joined)]
        return await super().call(method, command, payload)

    async def call_one(self, method: str, command: str, payload: str, *, engine: int) -> str:
        self.told.append((engine, command))
        if command == "steps":
            return json.dumps({"steps": [[engine + 1, 1.0, 1, 1, 0, 0, 0, 0, None, 1]]})
        return json.dumps({**APPLIED, "notices": []})


async def test_data_parallel_ranks_are_changed_one_after_the_other(ask: Asking) -> None:
    cores = Several((STATE, STATE))
    answer = await ask(cores, Change(k=3))
    assert (answer.status_code, answer.json()["applied"]) == (200, {"k": 3})
    assert [rank["rank"] for rank in answer.json()["ranks"]] == [0, 1]
    assert cores.told == [(0, "change"), (1, "change")]
    assert cores.asked.count("join") == 1


async def test_the_state_is_that_of_all_ranks(ask: Asking) -> None:
    state = (await ask(Several((STATE, STATE)))).json()
    assert (state["drafts"], state["drafted_per_position"]) == (4, [4, 2])
    assert [(rank["rank"], rank["drafts"]) for rank in state["ranks"]] == [(0, 2), (1, 2)]
    assert {one["name"] for one in state["capabilities"] if one["available"]} >= {"live_k"}


async def test_the_steps_of_each_rank_are_told_apart(ask: Asking) -> None:
    for rank, path in ((0, "steps"), (0, "steps?rank=0"), (1, "steps?rank=1")):
        reply = (await ask(Several((STATE, STATE)), path=path)).json()
        assert [step["step"] for step in reply["steps"]] == [rank + 1]
    assert (await ask(Several((STATE, STATE)), path="steps?rank=2")).status_code == 400


@pytest.mark.parametrize(("cores", "why"), [
    (Several((STATE, STATE), reached=1), "this API server reaches 1 of 2 data-parallel ranks"),
    (Several((STATE, STATE), joined={"error": {"message": "broken"}}), "rank 1 failed: broken"),
    (Several((STATE, STATE), servers=2), "share nothing to take turns by"),
    (Cores((STATE, STATE), ranks=2), "the engine client has no _call_utility_async"),
])  # fmt: skip
async def test_ranks_that_cannot_be_changed_together_are_not_changed_and_the_state_says_why(
    ask: Asking, cores: Cores, why: str
) -> None:
    answer = await ask(cores, Change(k=3))
    assert answer.status_code == 501
    error = answer.json()["error"]
    assert error["code"] == "ranks"
    assert why in error["message"]
    assert "one engine per rank" in error["remedy"]
    assert cores.changed == []
    able = {one["name"]: one for one in (await ask(cores)).json()["capabilities"]}
    assert [name for name, one in able.items() if one["available"]] == ONLY_PINS
    assert why in able["policy.goodput"]["reason"]
    assert able["cold"]["reason"] == "it has no drafter"


async def test_an_engine_serves_while_a_servers_files_are_read(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, cores = threading.Event(), Cores()

    def read_slowly(args: Any) -> tuple[dict[str, Any], list[dict[str, str]]]:
        read.wait(30)
        return {"chat_template": "c7"}, []

    monkeypatch.setattr(module, "read_serving_facts", read_slowly)
    monkeypatch.setattr(module, "_READING_S", 0.01)
    assert (await ask(cores)).status_code == 200
    pending = {"facts": {}, "unread": [{"fact": "serving", "reason": "being read"}]}
    assert cores.serving == [pending]
    read.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=10)
    assert cores.serving[1:] == [{"facts": {"chat_template": "c7"}, "unread": []}]


async def test_the_first_error_of_several_engines_is_the_answer(ask: Asking) -> None:
    answer = await ask(Cores((APPLIED, REFUSED, APPLIED)), Change(k=3))
    assert (answer.status_code, answer.json()["error"]["message"]) == (409, "moved")


async def test_an_engine_whose_home_cannot_be_written_is_watched_and_says_what_is_missing(
    ask: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv(TOKEN_FILE_VARIABLE)
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "file" / "home"))
    cores = Cores()
    state = (await ask(cores)).json()
    assert state["system_fingerprint"] == "vllm-0.32.0-09d54272"
    able = {one["name"]: one for one in state["capabilities"]}
    assert [name for name, one in able.items() if one["available"]] == ONLY_PINS
    assert "cannot keep an admin token" in able["live_k"]["reason"]
    assert "SPECDECK_HOME" in able["live_k"]["remedy"]
    assert cores.asked == ["state", "serving", "state"]  # to take hold, and for the answer
    answer = await ask(cores, Change(k=3))
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "admin_token")
    assert cores.changed == []


async def test_a_user_without_a_home_is_no_reason_to_stay_away(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in (TOKEN_FILE_VARIABLE, "SPECDECK_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    state = (await ask(Cores())).json()
    assert state["system_fingerprint"] == "vllm-0.32.0-09d54272"


def fake_vllm(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__=version))


async def test_an_engine_before_0_32_is_left_alone_and_says_why(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm(monkeypatch, "0.31.0")
    monkeypatch.setenv(EXACT_VARIABLE, '["exact"]')
    marked: list[frozenset[str]] = []
    monkeypatch.setattr(request_pins, "mark_exact_requests", marked.append)
    cores = Cores()
    for answer in (await ask(cores), await ask(cores, Change(k=3))):
        assert answer.status_code == 501
        error = answer.json()["error"]
        assert error["code"] == "engine_client"
        assert "vLLM 0.31.0 can only be watched" in error["message"]
        assert error["remedy"] == "use vLLM 0.32 or 0.33"
    assert (cores.asked, marked) == ([], [])


async def test_arguments_with_a_secret_are_deleted_though_nobody_follows_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token.yaml"
    file.write_text(format_values(["PLANTpw12345"]))
    monkeypatch.setenv("SPECDECK_MASK_LOGS", str(file))
    fake_vllm(monkeypatch, "0.31.0")  # also where the engine is left alone
    await SpecdeckEndpoint().init_state(SimpleNamespace(), None, SimpleNamespace(port=8000))
    assert not file.exists()


async def test_an_engine_client_without_the_call_is_left_alone_whatever_its_version(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older(Cores):
        @property
        def engine_core(self) -> Any:
            return SimpleNamespace(call_utility_async=self.call)

    fake_vllm(monkeypatch, "0.32.0")
    cores = Older()
    error = (await ask(cores, Change(k=3))).json()["error"]
    assert "vLLM 0.32.0 has no call_utility_all_async" in error["message"]
    assert error["remedy"] == "use vLLM 0.32 or 0.33"
    assert cores.asked == []


@dataclass
class Posted:
    """A request whose body is sent as it is read; the last chunk never comes if it `stalls`."""

    chunk: bytes
    chunks: int = 1
    stalls: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    read: int = 0

    async def stream(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            self.read += len(self.chunk)
            yield self.chunk
        if self.stalls:
            await asyncio.Event().wait()


async def test_a_body_without_a_length_is_read_up_to_its_bound() -> None:
    request = Posted(b" " * 1000, chunks=10**6)
    with pytest.raises(Refusal, match="longer than 64 KB") as refusal:
        await read_json(request)
    assert refusal.value.status == 400
    assert request.read <= MOST_BODY + 1000


@pytest.mark.parametrize("length", [str(MOST_BODY + 1), "9" * 4400], ids=["more", "absurd"])
async def test_a_body_that_says_its_length_is_not_read(length: str) -> None:
    request = Posted(b"{}", headers={"content-length": length})
    with pytest.raises(Refusal, match="longer than 64 KB"):
        await read_json(request)
    assert request.read == 0


async def test_a_body_that_does_not_end_is_not_waited_for() -> None:
    with pytest.raises(Refusal, match="did not arrive within") as refusal:
        await read_json(Posted(b"{", stalls=True), patience_s=0.01)
    assert refusal.value.status == 400


async def test_a_client_that_leaves_is_no_failure_of_the_server() -> None:
    from starlette.requests import ClientDisconnect

    class Leaving(Posted):
        async def stream(self) -> AsyncIterator[bytes]:
            yield b"{"
            raise ClientDisconnect

    with pytest.raises(Refusal):
        await read_json(Leaving(b""))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\xff\xfe", b"[" * 60_000, b'{"k":' * 10_000, b'{"k": %s}' % (b"9" * 4200),
        b'{"k": %s}' % (b"9" * 5000), b'{"k": NaN}', b'{"lease_s": -Infinity}', b"\x00" * 8,
    ],
)  # fmt: skip
def test_what_is_no_sensible_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="is not JSON") as refusal:
        parse_json(body)
    assert refusal.value.status == 400


async def test_a_change_is_read_whole() -> None:
    assert await read_json(Posted(b'{"k": 3}', headers={"content-length": "8"})) == {"k": 3}


@given(st.binary())
def test_no_bytes_do_worse_than_be_refused(body: bytes) -> None:
    found: Any = None
    try:
        found = parse_json(body)
    except Refusal as refusal:
        found = refusal.status
    assert found == 400 or isinstance(found, dict | list | str | int | float | None)
