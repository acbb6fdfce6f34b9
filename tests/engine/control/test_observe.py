from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.control.observe import LATER, NO_TRAFFIC, Outcome, apply
from specdeck.engine.control.protocol import Change, EngineState
from specdeck.engine.errors import Unauthorized, Unsupported

URL = "http://engine:8000"
State = Callable[..., EngineState]
Page = Callable[[float, float, float], str]


def page(drafts: float, drafted: float, generated: float) -> str:
    rows = {
        "vllm:spec_decode_num_drafts_total": drafts,
        "vllm:spec_decode_num_draft_tokens_total": drafted,
        "vllm:generation_tokens_total": generated,
        "other": 0.0,
    }
    return "".join(
        f'{name}{{engine="0",model_name="demo"}} {value}\n' for name, value in rows.items()
    )


class Engine:
    """An engine that makes `pace` steps each time its state is asked, drafting k in each.

    A step verifies the drafts of the step before, so a change shows one step late.
    """

    def __init__(self, state: EngineState, *, pace: int = 2, lengths: tuple[int, ...] = ()) -> None:
        self.k, self.k_set, self.mode = state.k, state.k_set, state.mode
        self._state = state
        self._pace = pace
        self._lengths: Iterator[int] = iter(lengths * 1000)
        self._waiting_draft = state.k
        self.step, self.drafts, self.drafted, self.generated = 100, 0, 0, 0
        self.fails: Exception | None = None
        self.now = 0.0

    def client(self, token: str | None = "secret") -> EngineClient:
        return open_client(URL, token=lambda: token, transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.now += 0.01
        if request.method == "PUT":
            return self._change(json.loads(request.content))
        if self.fails:
            raise self.fails
        if request.url.path == "/metrics":
            text = page(self.drafts, self.drafted, self.generated)
            return httpx.Response(200, text=text)
        for _ in range(self._pace):
            self._make_step()
        busy = {"running": 4 if self._pace else 0, "step": self.step, "k": self.k}
        return httpx.Response(200, json={**self._state.as_json(), **busy, "mode": self.mode})

    def _make_step(self) -> None:
        self.step += 1
        self.generated += 1
        if self._waiting_draft:
            self.drafts += 1
            self.drafted += self._waiting_draft
        self._waiting_draft = min(self.k, next(self._lengths, self.k))

    def _change(self, asked: dict[str, Any]) -> httpx.Response:
        before = {"k": self.k_set, "mode": self.mode}
        self.k_set = asked.get("k", self.k_set)
        self.mode = asked.get("mode", self.mode)
        self.k = 0 if self.mode == "target-only" else self.k_set
        reply = {
            "before": {knob: before[knob] for knob in ("k", "mode") if knob in asked},
            "applied": {knob: asked[knob] for knob in ("k", "mode") if knob in asked},
            "version": 1,
            "step": self.step,
        }
        return httpx.Response(200, json=reply)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def apply(self, change: Change) -> Outcome:
        return await apply(self.client(), change, clock=lambda: self.now, sleep=self.sleep)


@pytest.mark.parametrize("pace", [1, 2, 50])
@pytest.mark.parametrize("k", [1, 3, 4])
async def test_the_observed_k_is_of_steps_after_the_change(state: State, k: int, pace: int) -> None:
    outcome = await Engine(state(), pace=pace).apply(Change(k=k))
    assert outcome.observed_k == k
    assert outcome.observed_after_ms is not None
    assert outcome.observed_after_ms > outcome.ack_ms
    assert outcome.notices == ()


async def test_the_json_has_exactly_the_keys_of_the_contract(state: State) -> None:
    line = (await Engine(state()).apply(Change(k=3))).as_json()
    assert line.pop("observed_after_ms") > 0
    assert line == {
        "requested": {"k": 3},
        "applied": {"k": 3},
        "before": {"k": 5},
        "ack_ms": 10.0,
        "observed_k": 3.0,
        "undo": f"specdeck set {URL} k=5",
    }


async def test_target_only_is_observed_as_tokens_without_drafts(state: State) -> None:
    outcome = await Engine(state(), pace=1).apply(Change(mode="target-only"))
    assert outcome.observed_k == 0.0
    assert outcome.undo == f"specdeck set {URL} mode=speculate"


async def test_the_way_back_from_target_only_shows_the_k_that_was_set(state: State) -> None:
    outcome = await Engine(state(k=0, mode="target-only")).apply(Change(mode="speculate"))
    assert outcome.observed_k == 5.0


async def test_k_zero_is_observed_too(state: State) -> None:
    assert (await Engine(state()).apply(Change(k=0))).observed_k == 0.0


async def test_k_set_in_target_only_says_when_it_takes_effect(state: State) -> None:
    outcome = await Engine(state(k=0, mode="target-only")).apply(Change(k=3))
    assert (outcome.applied, outcome.observed_k) == ({"k": 3}, 0.0)
    assert outcome.notices == (LATER,)


async def test_without_traffic_nothing_is_observed_and_that_is_said(state: State) -> None:
    engine = Engine(state(running=0), pace=0)
    outcome = await engine.apply(Change(k=3))
    assert (outcome.observed_k, outcome.observed_after_ms) == (None, None)
    assert outcome.notices == (NO_TRAFFIC,)
    assert engine.now < 2.0


async def test_drafts_of_varying_length_are_averaged(state: State) -> None:
    outcome = await Engine(state(), pace=3, lengths=(3, 2, 3, 3, 1)).apply(Change(k=3))
    assert outcome.observed_k is not None
    assert 2.0 <= outcome.observed_k <= 3.0


async def test_an_engine_that_ignores_k_is_shown_as_it_is(state: State) -> None:
    engine = Engine(state())
    real = engine.answer

    def deaf(request: httpx.Request) -> httpx.Response:
        response = real(request)
        engine.k = 5
        return response

    engine.answer = deaf  # type: ignore[method-assign]  # a test's engine that misbehaves
    outcome = await engine.apply(Change(k=3))
    assert (outcome.applied, outcome.observed_k) == ({"k": 3}, 5.0)


async def test_an_engine_lost_after_the_change_is_a_notice(state: State) -> None:
    engine = Engine(state())
    real = engine.answer

    def dying(request: httpx.Request) -> httpx.Response:
        response = real(request)
        if request.method == "PUT":
            engine.fails = httpx.ReadTimeout("")
        return response

    engine.answer = dying  # type: ignore[method-assign]  # a test's engine that dies
    outcome = await engine.apply(Change(k=3))
    assert outcome.applied == {"k": 3}
    assert outcome.observed_k is None
    assert "no answer" in outcome.notices[-1]


async def test_a_change_that_is_refused_raises(state: State) -> None:
    with pytest.raises(Unauthorized):
        await apply(Engine(state()).client(token=None), Change(k=3))
    absent = open_client(URL, transport=httpx.MockTransport(lambda _: httpx.Response(404)))
    with pytest.raises(Unsupported, match="without the specdeck plugin"):
        await apply(absent, Change(k=3))
