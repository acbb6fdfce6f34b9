"""How an arm is asked: bodies, repetition, priorities and pace."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check
from tests.support.lying_engine import EVENT_STREAM, Lie, LyingEngine, endless, event, head, reply

from specdeck.engine.client import bounds
from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.http import Deadline
from specdeck.engine.client.retry import Retry, WaitingForEngine
from specdeck.engine.divergence import requests
from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.arms import Arm, Facts, describe_soft
from specdeck.engine.divergence.pacing import Pacer
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.requests import Asker, Continuations, Refusal, RequestSettings
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.errors import EngineError, NotAnEngine, Unauthorized, Unreachable
from specdeck.engine.operations.check import ArmsReady, run_check

PROMPTS: list[dict[str, Any]] = [
    {"prompt": "a"},
    {"messages": [{"role": "user", "content": "a"}]},
]
NEUTRAL = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


@pytest.mark.parametrize("body", PROMPTS)
@pytest.mark.parametrize("pin", [None, 0])
@pytest.mark.parametrize("stream", [False, True])
def test_no_penalty_of_the_server_stands_between_a_token_and_its_logprob(
    body: dict[str, Any], pin: int | None, stream: bool
) -> None:
    asked = requests.request_body(
        Prompt(1, 1, body), RequestSettings(), model="m", pin=pin, stream=stream
    )
    assert {name: asked.get(name) for name in NEUTRAL} == NEUTRAL


def test_draws_are_made_as_the_server_would_make_them() -> None:
    asked = requests.sampling_body(
        Prompt(1, 1, PROMPTS[0]), model="m", pin=None, n=8, tokens=4, temperature=1.0
    )
    assert not set(NEUTRAL) & set(asked)


PROMPT = Prompt(1, 1, {"prompt": "a"})
GOOD = {
    "choices": [
        {
            "text": "b", "token_ids": [5], "finish_reason": "stop",
            "logprobs": {"token_logprobs": [-0.1], "top_logprobs": [{"token_id:5": -0.1}]},
        }
    ]
}  # fmt: skip


class Patience:
    """An asker whose waits are written down and not waited for."""

    def __init__(self, *replies: Callable[[], httpx.Response], patience_s: float = 60.0) -> None:
        self.waits: list[float] = []
        self.said: list[str] = []
        self.now = 0.0
        left = list(replies)

        def reply(request: httpx.Request) -> httpx.Response:
            return (left.pop(0) if len(left) > 1 else left[0])()

        http = httpx.AsyncClient(base_url="http://e", transport=httpx.MockTransport(reply))
        arm = Arm("serving", "http://e", "serving", Facts("demo"))
        self.asker = Asker(
            http,
            arm,
            RequestSettings(),
            retry=Retry(
                patience_s,
                on_notice=lambda waiting: self.said.append(waiting.line()),
                sleep=self._sleep,
                clock=lambda: self.now,
            ),
        )

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def status(code: int, **headers: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(code, headers=headers, json={"error": {"message": "so"}})


def good() -> httpx.Response:
    return httpx.Response(200, json=GOOD)


async def test_waits_double_and_an_engines_own_wish_is_followed() -> None:
    patience = Patience(status(503), status(503), status(429, **{"Retry-After": "7"}), good)
    assert isinstance(await patience.asker.answer(PROMPT), Answer)
    assert patience.waits == [0.25, 0.5, 7.0]


async def test_a_long_wait_is_told_now_and_then_and_a_short_one_not_at_all() -> None:
    waiting = Patience(status(503))
    with pytest.raises(Unreachable):
        await waiting.asker.answer(PROMPT)
    assert waiting.said == [
        "http://e answers 503: waiting for it up to 60 s",
        "http://e answers 503: waiting for it up to 60 s",
    ]
    short = Patience(status(503), status(503), good)
    await short.asker.answer(PROMPT)
    assert short.said == []


async def test_patience_ends() -> None:
    patience = Patience(status(503))
    with pytest.raises(Unreachable, match="answers 503"):
        await patience.asker.answer(PROMPT)
    assert patience.now <= 60.0


async def test_an_engine_that_says_retry_at_once_is_not_hammered() -> None:
    patience = Patience(status(429, **{"Retry-After": "0"}), patience_s=2400.0)
    with pytest.raises(Unreachable, match="429"):
        await patience.asker.answer(PROMPT)
    assert len(patience.waits) > 1100  # and one that is away for so long breaks no arithmetic
    assert min(patience.waits) == 0.25


async def test_an_accident_that_repeats_itself_is_none() -> None:
    patience = Patience(status(500))
    with pytest.raises(EngineError):
        await patience.asker.answer(PROMPT)
    assert len(patience.waits) == 2


@pytest.mark.parametrize(
    "cut",
    [{"choices": []}, *({"choices": [GOOD["choices"][0] | {"finish_reason": why}]}
                        for why in (None, "abort", "error"))],
)  # fmt: skip
async def test_an_answer_that_was_broken_off_is_asked_again(cut: dict[str, Any]) -> None:
    part = lambda: httpx.Response(200, json=cut)  # noqa: E731
    patience = Patience(part, good)
    assert isinstance(await patience.asker.answer(PROMPT), Answer)
    assert patience.waits == [0.25]
    always = Patience(part)
    with pytest.raises(EngineError, match=r"broke off an answer: (no )?finish_reason"):
        await always.asker.answer(PROMPT)
    stream = Patience(lambda: httpx.Response(200, text="data: [DONE]\n\n"))
    with pytest.raises(EngineError, match="no finish_reason"):
        await stream.asker.answer(PROMPT, stream=True)


async def test_a_wrong_key_is_not_tried_again() -> None:
    patience = Patience(status(401))
    with pytest.raises(Unauthorized):
        await patience.asker.answer(PROMPT)
    assert patience.waits == []


async def test_a_prompt_that_is_at_fault_is_refused_with_the_engines_words() -> None:
    assert await Patience(status(400)).asker.answer(PROMPT) == Refusal("so")


@pytest.mark.parametrize("choice", [{}, {"prompt_logprobs": None}])
async def test_a_server_without_the_targets_thoughts_does_not_end_a_check(choice: Any) -> None:
    silent = Patience(lambda: httpx.Response(200, json={"choices": [choice]}))
    found = await silent.asker.score_tokens((1, 2))
    assert found == Refusal("http://e gives no prompt_logprobs")
    assert silent.waits == []


@pytest.mark.parametrize("stream", [False, True])
async def test_tls_that_breaks_is_an_answer_that_was_broken_off(stream: bool) -> None:
    def broken() -> httpx.Response:
        raise ssl.SSLError(1, "[SSL: X] bad record mac")

    patience = Patience(broken)
    with pytest.raises(EngineError, match="broke off the TLS connection: bad record mac"):
        await patience.asker.answer(PROMPT, stream=stream)
    assert patience.waits


async def test_a_stream_that_breaks_off_is_asked_again_as_a_whole() -> None:
    event = f"data: {json.dumps(GOOD)}\n\n"
    patience = Patience(
        lambda: httpx.Response(200, text=event),
        lambda: httpx.Response(200, text=f'{event}data: {{"error": "EngineDeadError"}}\n\n'),
        lambda: httpx.Response(200, text=f"{event}data: [DONE]\n\n"),
    )
    answer = await patience.asker.answer(PROMPT, stream=True)
    assert isinstance(answer, Answer)
    assert answer.token_ids == (5,)
    assert len(patience.waits) == 2


@pytest.mark.parametrize(("code", "is_refused"), [(400, True), (500, False), ([400], False)])
async def test_a_stream_that_refuses_its_request_is_not_asked_again(
    code: object, is_refused: bool
) -> None:
    error = json.dumps({"error": {"message": "Grammar error", "code": code}})
    patience = Patience(
        lambda: httpx.Response(200, text=f"data: {error}\n\ndata: [DONE]\n\n"),
        lambda: httpx.Response(200, text=f"data: {json.dumps(GOOD)}\n\ndata: [DONE]\n\n"),
    )
    answer = await patience.asker.answer(PROMPT, stream=True)
    assert (answer == Refusal("Grammar error")) is is_refused
    assert bool(patience.waits) is not is_refused


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_a_stream_may_be_cut_anywhere(size: int) -> None:
    text = f": a comment\r\n\r\ndata: {json.dumps(GOOD)}\r\n\r\ndata:{json.dumps(GOOD)}\n\n"
    whole = f"{text}data: [DONE]\n\n".encode()

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(whole), size):
            yield whole[at : at + size]

    patience = Patience(lambda: httpx.Response(200, content=chunks()))
    answer = await patience.asker.answer(PROMPT, stream=True)
    assert isinstance(answer, Answer)
    assert answer.token_ids == (5, 5)


async def test_what_is_not_vllms_ends_at_once() -> None:
    with pytest.raises(NotAnEngine):
        await Patience(lambda: httpx.Response(200, text="<html>")).asker.answer(PROMPT)
    with pytest.raises(NotAnEngine):
        await Patience(lambda: httpx.Response(200, json=[])).asker.answer(PROMPT)


async def test_a_gentle_check_takes_a_low_priority_where_there_are_any(bench: Bench) -> None:
    facts = {"config": {"scheduler": {"policy": "priority"}}}
    engine = bench.engine(facts=facts, pages=[page(0.01)])
    async with bench.lab(engine, gentle=True) as lab:
        await finish_check(lab, bench.many(2), bench.store)
    assert {body.get("priority") for body in engine.asked} == {1}
    assert engine.busiest == 1


async def test_a_gentle_check_asks_one_at_a_time_where_there_are_none(bench: Bench) -> None:
    engine = bench.engine(pages=[page(0.01)])
    async with bench.lab(engine, gentle=True) as lab:
        outcome = (await finish_check(lab, bench.many(2), bench.store)).outcome
    assert outcome.totals.prompts == 2
    assert engine.busiest == 1


async def test_a_resumed_check_may_be_gentler_than_it_began(bench: Bench) -> None:
    engine, prompts = bench.engine(pages=[page(0.01)]), bench.many(4)
    async with (
        bench.lab(engine) as lab,
        aclosing(run_check(lab, prompts, bench.store)) as events,
    ):
        async for event in events:
            if isinstance(event, CheckProgress) and event.done >= 1:
                break
    async with bench.lab(engine, gentle=True) as lab:
        ready = await anext(run_check(lab, prompts, bench.store))
        await finish_check(lab, prompts, bench.store)
    assert isinstance(ready, ArmsReady)
    assert ready.resumed >= 1


def page(slow: float, count: int = 100) -> str:
    """A page on which `count` inter-token latencies were `slow` seconds at most."""
    lines = [
        f'vllm:inter_token_latency_seconds_bucket{{le="{le}",model_name="demo"}} '
        f"{count if slow <= le else 0}.0"
        for le in (0.01, 0.1, 1.0, float("inf"))
    ]
    lines.append(f'vllm:inter_token_latency_seconds_count{{model_name="demo"}} {count}.0')
    lines.append('vllm:num_requests_running{model_name="demo"} 1.0')
    return "\n".join(lines).replace('"inf"', '"+Inf"') + "\n"


async def test_the_rests_grow_while_production_feels_the_check() -> None:
    async def rest(*pages: str) -> float:
        left = list(pages)
        transport = httpx.MockTransport(lambda _: httpx.Response(200, text=left.pop(0)))
        pacer = Pacer(open_client("http://e", transport=transport), sleep=_at_once, rest=4.0)
        async with pacer.turn(lambda: 0.0):
            pass
        return pacer.rest

    begin, fast, slow = page(0.01, 0), page(0.01), page(1.0)
    after_slow = merged(slow, fast)
    assert await rest(begin, slow, after_slow) == 6.0
    assert await rest(begin, fast, merged(fast, fast)) == pytest.approx(3.6)


async def test_nobody_is_spared_where_nobody_is_served() -> None:
    own = [page(0.01, count) for count in (0, 100, 100, 100, 200, 200)]
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=own.pop(0)))
    pacer = Pacer(open_client("http://e", transport=transport), sleep=_at_once, rest=4.0)
    for _ in range(2):
        async with pacer.turn(lambda: 0.0):
            pass
    assert pacer.rest == 1.0


async def test_a_restart_of_the_engine_teaches_nothing() -> None:
    pages = [page(0.01, 100), page(0.01, 5), page(0.01, 9)]
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=pages.pop(0)))
    pacer = Pacer(open_client("http://e", transport=transport), sleep=_at_once, rest=4.0)
    async with pacer.turn(lambda: 0.0):
        pass
    assert pacer.rest == 4.0


async def _at_once(seconds: float) -> None:
    """Waits for nothing."""


def merged(one: str, other: str) -> str:
    """A page with the observations of both."""
    lines = zip(one.splitlines(), other.splitlines(), strict=True)
    return "".join(
        f"{a.rpartition(' ')[0]} {float(a.rpartition(' ')[2]) + float(b.rpartition(' ')[2])}\n"
        for a, b in lines
    )


STALLED = {
    "code": "stalled",
    "message": "the engine core has not answered for 4 s",
    "remedy": None,
}


class Clock:
    """Nobody waits for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def hear(self, waiting: WaitingForEngine) -> None:
        self.said.append(waiting.line())

    def retry(self, seconds: float) -> Retry:
        return Retry(seconds, on_notice=self.hear, sleep=self.sleep, clock=lambda: self.now)


def stalled(bench: Bench, clock: Clock, path: str, seconds: float) -> httpx.MockTransport:
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
async def test_a_core_that_stalls_in_the_set_up_is_waited_for(bench: Bench, path: str) -> None:
    clock = Clock()
    asking = open_client("http://engine", transport=stalled(bench, clock, path, 20.0))
    serving, _ = await describe_soft(asking, None, clock.retry(60.0))
    await asking.close()
    assert serving.facts.details == {"vllm": "0.32.0"}
    assert serving.facts.k == 5
    assert clock.said == [f"{STALLED['message']}: waiting for it up to 60 s"]


async def test_the_wait_for_a_core_ends_with_the_patience(bench: Bench) -> None:
    clock = Clock()
    asking = open_client("http://engine", transport=stalled(bench, clock, "/state", 1e9))
    with pytest.raises(Unreachable, match="has not answered"):
        await describe_soft(asking, None, clock.retry(60.0))
    await asking.close()
    assert 55.0 < clock.now <= 64.0


async def test_an_address_without_an_engine_is_told_at_once() -> None:
    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    clock = Clock()
    asking = open_client("http://engine", transport=httpx.MockTransport(refused))
    with pytest.raises(Unreachable):
        await describe_soft(asking, None, clock.retry(60.0))
    await asking.close()
    assert (clock.now, clock.said) == (0.0, [])


def lied_to(lie: Lie, path: str = requests.COMPLETIONS) -> tuple[LyingEngine, Prompt]:
    """An engine that answers a prompt with `lie`, and that prompt."""
    return LyingEngine({path: lie}), Prompt(1, 1, {"prompt": "a", "max_tokens": 4})


async def ask(engine: LyingEngine, prompt: Prompt, *, stream: bool, patience_s: float = 60) -> None:
    """Asks once, and never again."""
    arm = Arm("serving", engine.url, "serving", Facts("demo"))
    async with httpx.AsyncClient(base_url=engine.url) as http:
        asker = Asker(http, arm, RequestSettings(), retry=Retry(0.0), patience_s=patience_s)
        await asker.answer(prompt, stream=stream)


FLOOD = event({"choices": []}) * 1000


@pytest.mark.parametrize(
    ("lie", "stream", "words"),
    [
        (endless(EVENT_STREAM, FLOOD), True, "more than 1016 events"),
        (endless(EVENT_STREAM, b": ping\n\n" * 1000), True, "without an end"),
        (endless(EVENT_STREAM + b"data: ", b"x" * 9999), True, "without an end"),
        (endless(head(), b" " * 9999), False, "without an end"),
        (
            reply(b"x", ("Content-Length", "1"), ("Content-Encoding", "gzip")),
            True,
            "compresses its answers",
        ),
        (EVENT_STREAM + event(b"[" * 9999), True, "not JSON"),
        (EVENT_STREAM + event([]), True, "unexpected response"),
        (EVENT_STREAM + event({"choices": [{"text": 1}]}), True, "text is a whole number"),
        (EVENT_STREAM + event({"choices": {"0": 1}}), True, "choices is an object"),
        (EVENT_STREAM + event({"error": {"message": "a\x1b]52;c;x\x07b"}}), True, "a·]52;c;x·b"),
    ],
)
async def test_an_answer_that_lies_is_an_error_of_ours(lie: Lie, stream: bool, words: str) -> None:
    engine, prompt = lied_to(lie)
    with engine, pytest.raises(EngineError, match=words):
        await ask(engine, prompt, stream=stream)
    assert len(engine.asked) == 1
    assert engine.sent < 16_000_000


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_drips_is_given_up(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "TOKEN_S", 0.01)
    engine, prompt = lied_to(endless(EVENT_STREAM, b":\n", every_s=0.02))
    with engine, pytest.raises(Unreachable, match="gave no answer"):
        await ask(engine, prompt, stream=stream, patience_s=0.2)


@pytest.mark.parametrize(
    ("lie", "stream"),
    [
        (endless(head(), b" ", every_s=0.02), False),
        (endless(EVENT_STREAM + event({"choices": []}), b":\n", every_s=0.02), True),
    ],
    ids=["whole", "streamed"],
)
async def test_an_answer_that_has_begun_is_not_given_the_time_of_one_in_a_queue(
    lie: Lie, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was waited for as long as one that others are before: minutes, for four tokens."""
    monkeypatch.setattr(bounds, "TOKEN_S", 0.01)
    monkeypatch.setattr(bounds, "BEGUN_S", 0.2)
    engine, prompt = lied_to(lie)
    with engine, pytest.raises(Unreachable, match=r"did not end an answer within 0\.24 s"):
        await ask(engine, prompt, stream=stream, patience_s=3600.0)


@pytest.mark.parametrize(("retried_s", "seconds"), [(0.0, 64.0), (120.0, 124.0), (900.0, 904.0)])
async def test_an_answer_is_waited_for_as_long_as_an_engine_that_is_away(
    retried_s: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class Noted(Deadline):
        def __init__(self, seconds: float, *, begun_s: float | None = None) -> None:
            waits.append(seconds)
            super().__init__(seconds, begun_s=begun_s)

    monkeypatch.setattr(requests, "Deadline", Noted)
    engine, prompt = lied_to(reply({"choices": [{"token_ids": [1], "finish_reason": "stop"}]}))
    arm = Arm("serving", engine.url, "serving", Facts("demo"))
    with engine:
        async with httpx.AsyncClient(base_url=engine.url) as http:
            asker = Asker(http, arm, RequestSettings(), retry=Retry(retried_s))
            await asker.answer(prompt)
    assert waits == [seconds]


def figures(own: list[Any], likely: list[Any]) -> dict[str, Any]:
    """The log-probabilities of a completion."""
    return {"token_logprobs": own, "top_logprobs": likely}


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": ["1"]},
        {"token_ids": [1], "logprobs": figures(["x"], [None])},
        {"token_ids": [1], "logprobs": figures([-1], [{"token_id:1": []}])},
        {"token_ids": [1], "logprobs": figures([-1], [{"token_id:" + "9" * 20: -1}])},
        {"token_ids": [1, 2], "logprobs": figures([-1, -1], [None])},
        {"token_ids": [10**30]},
        {"message": {"tool_calls": [{"function": {"name": [1], "arguments": "{}"}}]}},
        {"message": {"tool_calls": {"0": 1}}},
        {"message": "text"},
        {"finish_reason": 1},
        {"prompt_token_ids": "123"},
        [],
    ],
)
async def test_an_answer_of_wrong_types_is_an_error_of_ours(choice: object) -> None:
    engine, prompt = lied_to(reply({"choices": [choice]}))
    with engine, pytest.raises(NotAnEngine, match="not in vLLM's form"):
        await ask(engine, prompt, stream=False)


@pytest.mark.parametrize(
    "choices",
    [[], [{"token_ids": [1], "finish_reason": "length"}] * 3, [{"token_ids": ["a"]}] * 2],
)
async def test_draws_are_as_many_as_were_asked_for(choices: list[Any]) -> None:
    liar = Patience(lambda: httpx.Response(200, json={"choices": choices}))
    with pytest.raises(NotAnEngine, match=r"of 2 continuations|no token ids"):
        await liar.asker.continuations(PROMPT, n=2, tokens=1, temperature=1.0)


@pytest.mark.parametrize(
    "thought",
    [
        1, {"5": 1}, {"5": {"logprob": "x"}}, {"5": {"rank": 1}}, {"../etc": {"logprob": -1}},
        {"٣": {"logprob": -1}}, {"": {"logprob": -1}}, {"9" * 5000: {"logprob": -1}},
    ],
    ids=range(8),
)  # fmt: skip
async def test_a_strange_thought_of_the_target_is_none(thought: object) -> None:
    body = {"choices": [{"prompt_logprobs": [None, thought]}]}
    liar = Patience(lambda: httpx.Response(200, json=body))
    assert isinstance(await liar.asker.score_tokens((1, 2)), Refusal)


async def test_draws_are_no_longer_than_was_asked_for() -> None:
    choices = [{"token_ids": ids, "finish_reason": "length"} for ids in ([1, 2, 3], [1])]
    liar = Patience(lambda: httpx.Response(200, json={"choices": choices}))
    with pytest.raises(NotAnEngine, match="draws 3 tokens where 2 are asked for"):
        await liar.asker.continuations(PROMPT, n=2, tokens=2, temperature=1.0)


@pytest.mark.parametrize(
    ("body", "length", "is_known"),
    [
        ({"prompt": "a"}, 4_000, True),
        ({"prompt": "a"}, 250_000, False),
        ({"prompt": [1, 2]}, 3, True),
        ({"prompt": [1, 2]}, 1_000, False),
    ],
)
async def test_more_ids_than_a_prompt_can_have_are_none(
    body: dict[str, Any], length: int, is_known: bool
) -> None:
    choice = {
        "token_ids": [5],
        "text": "b",
        "finish_reason": "length",
        "prompt_token_ids": [7] * length,
    }
    engine = Patience(lambda: httpx.Response(200, json={"choices": [choice]}))
    prompt = Prompt(1, 1, body)
    told = ((7,) * length) if is_known else None
    said = await engine.asker.answer(prompt)
    assert isinstance(said, Answer)
    assert said.prompt_ids == told
    drawn = await engine.asker.continuations(prompt, n=1, tokens=1, temperature=1.0)
    assert isinstance(drawn, Continuations)
    assert drawn.prompt_ids == told


async def test_a_look_is_bounded_whatever_the_tokens_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[bounds.AnswerBound] = []

    def note(*given: Any, **named: Any) -> bounds.AnswerBound:
        taken.append(bounds.look_bound(*given, **named))
        return taken[-1]

    monkeypatch.setattr(requests, "look_bound", note)
    engine = Patience(good)
    tokens = (100_000,) * 250_000
    await engine.asker.score_tokens(tokens, 20)
    await engine.asker.weigh_tokens(tokens, last=1, candidates=20)
    await engine.asker.continue_tokens(tokens, 1, 5)
    assert len(taken) == 3
    for bound in taken:
        assert bound.size <= 64_000_000
        assert bound.values <= 1_000_000
        assert bound.begun_s <= 120.0
        assert bound.seconds <= 180.0
