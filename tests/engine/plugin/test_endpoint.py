"""The routes of the API server's process, over engine cores that answer as they are told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from specdeck.engine.plugin import endpoint as module
from specdeck.engine.plugin import request_pins
from specdeck.engine.plugin.endpoint import SpecdeckEndpoint
from specdeck.engine.protocol.messages import (
    EXACT_VARIABLE,
    IN_RESPONSES_VARIABLE,
    PREFIX,
    TOKEN_FILE_VARIABLE,
    TOKEN_HEADER,
    Change,
)

fastapi = pytest.importorskip("fastapi")

STATE = {
    "instance": "one",
    "policy": "goodput",
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
WHY = "data-parallel ranks with different k could deadlock"


@dataclass
class Cores:
    """Engine cores behind a client, each with an answer of its own to a change."""

    to_changes: tuple[dict[str, Any], ...] = (APPLIED,)
    ranks: int = 1
    changed: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

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

    async def call(self, method: str, command: str, payload: str) -> list[str]:
        self.asked.append(command)
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

    async def asked(cores: Cores, change: Change | None = None) -> httpx.Response:
        app, endpoint = fastapi.FastAPI(), SpecdeckEndpoint()
        endpoint.attach_router(app)
        await endpoint.init_state(cores, None, SimpleNamespace(port=8000))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            if change is None:
                return await client.get(f"{PREFIX}/state")
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


async def test_nonsense_is_a_400_and_never_reaches_the_engine(ask: Asking) -> None:
    cores = Cores()
    answer = await ask(cores, Change(k=-1))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid")
    assert error["message"] == "k requires a whole number from 0 up, not -1"
    assert cores.changed == []


async def test_data_parallel_ranks_are_not_changed_and_the_state_says_why(ask: Asking) -> None:
    cores = Cores((APPLIED, APPLIED), ranks=2)
    answer = await ask(cores, Change(k=3))
    assert answer.status_code == 501
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == ("live_k", WHY)
    assert "one engine per rank" in error["remedy"]
    assert {"k": 3} not in cores.changed
    able = {one["name"]: one for one in (await ask(cores)).json()["capabilities"]}
    assert [name for name, one in able.items() if one["available"]] == ["request_k", "policy.fixed"]
    assert able["policy.goodput"]["reason"] == able["live_k"]["reason"] == WHY
    assert able["cold"]["reason"] == "it has no drafter"


async def test_no_rank_goes_on_with_a_policy_of_its_own(ask: Asking) -> None:
    cores = Cores((APPLIED, APPLIED), ranks=2)
    await ask(cores)
    (ended,) = cores.changed
    assert (ended["policy"], ended["parameters"]) == ("fixed", {"breaker.automatic": "never"})
    alone = Cores()
    await ask(alone)
    assert alone.changed == []


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
    assert [name for name, one in able.items() if one["available"]] == ["request_k", "policy.fixed"]
    assert "cannot keep an admin token" in able["live_k"]["reason"]
    assert "SPECDECK_HOME" in able["live_k"]["remedy"]
    assert cores.asked == ["state", "state"]  # once to take hold, once for the answer
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
