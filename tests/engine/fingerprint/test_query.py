"""Asking the probe set: both arms, the pin of a request, an engine that goes away."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.divergence.arms import describe_engine
from specdeck.engine.errors import EngineError, NotAnEngine
from specdeck.engine.fingerprint.behaviour import (
    Behaviour,
    explain_incomparable,
    moved_probes,
)
from specdeck.engine.fingerprint.fingerprint import (
    MOST_UNREAD,
    STALLED_S,
    Fingerprint,
    Unread,
    limit_unread,
)
from specdeck.engine.fingerprint.query import (
    PATIENCE_S,
    PROBES,
    fetch_finished,
    fetch_with_behaviour,
    parse_reply,
    probe_behaviour,
)
from specdeck.engine.protocol.messages import Capability, EngineState

Respond = Callable[[httpx.Request], httpx.Response]
_NO_PAGE = httpx.Response(404)


class ProbedEngine:
    """Answers probes; `states` are what it says of itself, the last one for good."""

    def __init__(self, *states: EngineState) -> None:
        self.states = list(states)
        self.asked: list[dict[str, Any]] = []
        self.pages: list[str] = []
        self.logprob: Callable[[dict[str, Any]], float] = lambda body: -0.5
        self.token: Callable[[dict[str, Any]], int] = lambda body: 2

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "demo"}]})
        if path == "/v1/specdeck/state":
            if not self.states:
                return httpx.Response(404)
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return httpx.Response(200, json=state.as_json())
        if path == "/metrics":
            return httpx.Response(200, text=self.pages.pop(0)) if self.pages else _NO_PAGE
        body = json.loads(request.content)
        self.asked.append(body)
        logprobs = {"token_logprobs": [-0.1, self.logprob(body)]}
        choice: dict[str, Any] = {"token_ids": [1, self.token(body)], "logprobs": None}
        if body["logprobs"] is not None:
            choice["logprobs"] = logprobs
        return httpx.Response(200, json={"choices": [choice]})

    def client(self) -> Any:
        return open_client("http://e:1", transport=httpx.MockTransport(self))


@pytest.fixture
def able(state: Callable[..., EngineState]) -> EngineState:
    return state(capabilities=(Capability("request_k", True),))


async def test_every_probe_is_asked_on_both_arms_in_every_run(able: EngineState) -> None:
    engine = ProbedEngine(able)
    found = await probe_behaviour(engine.client(), runs=2)
    assert len(engine.asked) == len(PROBES) * 3 * 2
    pinned = [body for body in engine.asked if body.get("vllm_xargs") == {"specdeck_k": 0}]
    bare = [body for body in engine.asked if body["logprobs"] is None]
    assert len(pinned) == len(bare) == len(engine.asked) / 3
    assert {body["temperature"] for body in engine.asked} == {0}
    assert (found.runs, found.agreement, found.missing) == (2, 1.0, ())
    assert set(found.arms) == {"serving", "no-logprobs", "target-only"}


async def test_an_engine_that_cannot_pin_requests_is_partial(
    state: Callable[..., EngineState],
) -> None:
    unable = state(capabilities=(Capability("request_k", False, "too old"),))
    found = await probe_behaviour(ProbedEngine(unable).client(), runs=1)
    assert found.missing == ("target-only: too old",)
    assert found.name.startswith("sd1:x~")


async def test_without_the_plugin_the_serving_path_alone_is_asked() -> None:
    found = await probe_behaviour(ProbedEngine().client(), runs=1)
    assert set(found.arms) == {"serving", "no-logprobs"}
    assert found.name.startswith("sd1:x~")


async def test_a_restart_in_mid_probe_spoils_it(able: EngineState) -> None:
    engine = ProbedEngine(able, replace(able, instance="another"))
    with pytest.raises(EngineError, match="restarted during the probe"):
        await probe_behaviour(engine.client(), runs=1)


async def test_a_knob_turned_in_mid_probe_spoils_it(able: EngineState) -> None:
    engine = ProbedEngine(able, replace(able, fingerprint="sd1:p1111111111111111"))
    with pytest.raises(EngineError, match="changed its path during the probe"):
        await probe_behaviour(engine.client(), runs=1)


async def test_facts_and_behaviour_are_of_one_start_and_one_path(able: EngineState) -> None:
    path = "sd1:p0000000000000001"
    facts = {"names": {"build": "sd1:b1", "path": path}, "facts": {}, "partial": []}
    facts |= {"progress": {"finished": True}, "responses": {"stamped": True}, "instance": "one"}
    before = replace(able, instance="one", fingerprint=path)
    for after, word in (
        (replace(before, instance="another"), "restarted"),
        (replace(before, fingerprint="sd1:p0000000000000002"), "changed its path"),
        (before, None),
    ):
        engine = ProbedEngine(before, after)

        def respond(request: httpx.Request, engine: ProbedEngine = engine) -> httpx.Response:
            if request.url.path == "/v1/specdeck/facts":
                return httpx.Response(200, json=facts)
            return engine(request)

        asking = open_client("http://e:1", transport=httpx.MockTransport(respond))
        if word is None:
            assert (await fetch_with_behaviour(asking)).behaviour is not None
            continue
        with pytest.raises(EngineError, match=word):
            await fetch_with_behaviour(asking)


async def test_an_engine_that_dies_in_mid_probe_is_an_error_of_one_line(able: EngineState) -> None:
    engine = ProbedEngine(able)

    def respond(request: httpx.Request) -> httpx.Response:
        if len(engine.asked) >= 3:
            raise httpx.ConnectError("refused")
        return engine(request)

    asking = open_client("http://e:1", transport=httpx.MockTransport(respond))
    with pytest.raises(EngineError, match="the probe got no answer"):
        await probe_behaviour(asking, runs=1)


async def test_a_defect_of_the_speculative_path_shows_in_its_arm_alone(able: EngineState) -> None:
    engine = ProbedEngine(able)
    before = await probe_behaviour(engine.client(), runs=1)
    engine.logprob = lambda body: -0.5 if "vllm_xargs" in body else -0.75
    after = await probe_behaviour(engine.client(), runs=1)
    assert before.arms["target-only"] == after.arms["target-only"]
    assert before.name != after.name


async def test_a_defect_where_nobody_asks_for_log_probabilities_shows(able: EngineState) -> None:
    engine = ProbedEngine(able)
    pin = await probe_behaviour(engine.client())
    pin = Behaviour.from_json(json.loads(json.dumps(pin.as_json())))
    engine.token = lambda body: 9 if body["logprobs"] is None else 2
    found = await probe_behaviour(engine.client(), beside=pin)
    moved = moved_probes(pin, found)
    assert {one.arm for one in moved} == {"no-logprobs"}
    assert len(moved) == len(PROBES)
    older = replace(pin, arms={arm: pin.arms[arm] for arm in ("serving", "target-only")})
    found = await probe_behaviour(engine.client(), beside=older)
    assert moved_probes(older, found) == ()
    assert not list(explain_incomparable(older, found))


async def test_one_probe_with_another_token_is_asked_on_in_its_arm(able: EngineState) -> None:
    engine, steps = ProbedEngine(able), list[tuple[int, int]]()
    pin = await probe_behaviour(engine.client())
    engine.asked.clear()

    def is_other(body: dict[str, Any]) -> bool:
        return body["prompt"] == PROBES[3] and "vllm_xargs" in body

    engine.token = lambda body: 9 if is_other(body) else 2
    found = await probe_behaviour(
        engine.client(), beside=pin, on_progress=lambda done, of: steps.append((done, of))
    )
    further = engine.asked[len(PROBES) * 3 * 3 :]
    assert further
    assert all(map(is_other, further))
    assert steps[-1] == (len(engine.asked), len(engine.asked))
    assert [(one.arm, one.probe) for one in moved_probes(pin, found)] == [("target-only", 3)]

    engine.asked.clear()
    engine.token = lambda body: 9 if is_other(body) and len(engine.asked) < 158 else 2
    found = await probe_behaviour(engine.client(), beside=pin)
    assert moved_probes(pin, found) == ()


def started(at: float) -> str:
    gauges = (f'vllm:num_requests_{what}{{engine="0"}} 0.0\n' for what in ("running", "waiting"))
    return f"process_start_time_seconds {at}\n" + "".join(gauges)


async def test_without_the_plugin_a_restart_in_mid_probe_is_told_by_the_page() -> None:
    engine = ProbedEngine()
    engine.pages = [started(100.0), started(160.0)]
    with pytest.raises(EngineError, match="restarted during the probe"):
        await probe_behaviour(engine.client(), runs=1)
    engine.pages = [started(100.0), started(100.0)]
    assert (await probe_behaviour(engine.client(), runs=1)).runs == 1


@pytest.mark.parametrize("logprob", [float("nan"), float("-inf")])
async def test_a_log_probability_that_is_none_is_no_answer(
    able: EngineState, logprob: float
) -> None:
    engine = ProbedEngine(able)
    spoilt = f'{{"choices": [{{"token_ids": [1], "logprobs": {{"token_logprobs": [{logprob}]}}}}]}}'

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            text = spoilt.replace("nan", "NaN").replace("-inf", "-Infinity")
            return httpx.Response(200, text=text)
        return engine(request)

    asking = open_client("http://e:1", transport=httpx.MockTransport(respond))
    with pytest.raises(EngineError, match="is not JSON"):
        await probe_behaviour(asking, runs=1)


@pytest.mark.parametrize(
    ("tokens", "logprobs"),
    [([1] * 17, [-0.5] * 17), ([1, 2], [-0.5]), ([-1], [-0.5]), ([2**40], [-0.5]), ([1], [-1e300])],
)
async def test_an_answer_that_cannot_be_is_none(
    able: EngineState, tokens: list[int], logprobs: list[float]
) -> None:
    """A pin of it could not be read again, and a comparison went over every token."""
    engine = ProbedEngine(able)
    spoilt = {"choices": [{"token_ids": tokens, "logprobs": {"token_logprobs": logprobs}}]}

    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=spoilt) if request.method == "POST" else engine(request)

    asking = open_client("http://e:1", transport=httpx.MockTransport(respond))
    with pytest.raises(EngineError, match="unexpected response to a probe"):
        await probe_behaviour(asking, runs=1)


def told(facts: dict[str, Any], unread: int = 0) -> dict[str, Any]:
    partial = [{"fact": f"model.{n}", "reason": "gone"} for n in range(unread)]
    names = {"build": "sd1:b1", "path": "sd1:p1"}
    return {"facts": facts, "names": names, "partial": partial, "progress": {"finished": True}}


def test_facts_whose_places_take_far_more_room_than_the_reply_are_refused() -> None:
    tree: dict[str, Any] = {str(n): 1 for n in range(100)}
    for _ in range(55):
        tree = {"k" * 3_900: tree}
    assert len(json.dumps(tree)) < 250_000
    with pytest.raises(NotAnEngine, match="the places of its facts have more than"):
        parse_reply(told(tree), url="http://e:1", t=1.0)


def test_of_many_unread_facts_the_first_are_named_and_stay_in_a_pin() -> None:
    seen = parse_reply(told({"a": 1}, unread=5_000), url="http://e:1", t=1.0)
    assert len(seen.unread) == MOST_UNREAD
    assert seen.unread[-1] == Unread("4001 more facts", "too many to name")
    assert Fingerprint.from_json(seen.as_json()).unread == seen.unread
    assert limit_unread(seen.unread[:-1]) == seen.unread[:-1]


async def test_facts_whose_places_take_gigabytes_are_none(
    state: Callable[..., EngineState],
) -> None:
    tree: dict[str, Any] = {str(n): 1 for n in range(100)}
    for _ in range(55):
        tree = {"k" * 3_900: tree}
    replies = {
        "/v1/models": {"data": [{"id": "demo"}]},
        "/v1/specdeck/state": state().as_json(),
        "/v1/specdeck/facts": told(tree),
    }

    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=replies[request.url.path])

    asking = open_client("http://e:1", transport=httpx.MockTransport(respond))
    found, _ = await describe_engine(asking, None)
    assert (found.model, found.details) == ("demo", None)
    replies["/v1/specdeck/facts"] = told({"a": {"b": 1}})
    found, _ = await describe_engine(asking, None)
    assert found.details == {"a.b": 1}


class ReadingEngine:
    """Reads its weights as far as a test says, a clock beside it that its asker moves."""

    def __init__(self, read_until_s: float) -> None:
        self.now, self.heard, self._until_s = 0.0, list[float](), read_until_s

    def __call__(self, request: httpx.Request) -> httpx.Response:
        done = int(min(self.now, self._until_s)) * 10**9
        progress = {"finished": False, "bytes": done, "total_bytes": 10**12, "file": "m"}
        return httpx.Response(200, json={**told({"a": 1}), "progress": progress})

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def fetch(self) -> Fingerprint:
        client = open_client("http://e:1", transport=httpx.MockTransport(self))
        return await fetch_finished(
            client, clock=lambda: self.now, sleep=self.sleep,
            on_progress=lambda progress, stalled_s: self.heard.append(stalled_s),
        )  # fmt: skip


async def test_weights_that_are_read_no_further_are_waited_for_a_minute() -> None:
    engine = ReadingEngine(100.0)
    with pytest.raises(EngineError, match=r"no further for 60 s: reading m, 100.0 of 1000.0 GB"):
        await engine.fetch()
    assert engine.now == 100 + STALLED_S
    assert max(engine.heard[:200]) < 2
    assert engine.heard[-1] == STALLED_S


async def test_weights_that_are_read_on_and_on_are_waited_for_as_long_as_before() -> None:
    engine = ReadingEngine(math.inf)
    with pytest.raises(EngineError, match="for 600 s"):
        await engine.fetch()
    assert engine.now == PATIENCE_S
