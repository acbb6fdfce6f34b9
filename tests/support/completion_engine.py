"""An engine of functions that completes prompts: a language of its own, and planted faults."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.operations.check import CheckedEngine
from specdeck.engine.protocol.messages import PREFIX, Capability, EngineState
from tests.support.engine_state import engine_state

NAMES: dict[str, Any] = {
    "names": {"build": "sd1:b0", "path": "sd1:p0"},
    "partial": [],
    "progress": {"finished": True},
}
_SAMPLED = 10
"""Continuations at a temperature are of tokens below it, prompts of characters."""
STEP = 1 / 16
"""The margins of this language are multiples of it, as bfloat16's are."""


@dataclass(frozen=True)
class Fault:
    """What happens to the serving arm's answer to one prompt."""

    index: int
    margin: float
    """By how much the target prefers its own token there."""
    honest: bool = True
    """Whether the arm's own figures favour what it said, as after another rounding."""


@dataclass
class CompletionEngine:
    """Answers as vLLM does; a request pinned to 0 never meets a fault."""

    url: str = "http://engine"
    faults: dict[str, Fault] = field(default_factory=dict)
    """By prompt text."""
    bare_faults: dict[str, Fault] = field(default_factory=dict)
    """Met where no log-probabilities are asked for."""
    cold_faults: dict[str, Fault] = field(default_factory=dict)
    """Met where the prompt is in no prefix cache yet."""
    unrepeatable: dict[str, Fault] = field(default_factory=dict)
    """Met by every second answer of either arm."""
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Arguments of the tool call: the target's and the serving arm's, by text of the message."""
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What the target's and the serving arm's answer say in the end, by prompt text."""
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    """Answers in store for the next requests; 0 is a connection that breaks."""
    plugin: bool = True
    version: str = "0.32.0"
    models: tuple[str, ...] = ("demo",)
    pins: bool = True
    price: str | None = None
    """What a pinned request costs the others."""
    obeys_pins: bool = True
    drafts: bool = True
    vocabulary: int = 0
    """Shifts every token of a prompt."""
    facts: dict[str, Any] = field(default_factory=lambda: {"vllm": "0.32.0"})
    pages: list[str] = field(default_factory=list)
    """Answers of /metrics, the last one for ever."""
    stream_loses: frozenset[str] = frozenset()
    """Prompts whose streamed text lacks its end, in both arms."""
    drafts_lose: frozenset[str] = frozenset()
    """The same where nothing is pinned, so in the serving arm alone."""
    pins_lose: frozenset[str] = frozenset()
    """And in the reference alone."""
    named: list[str] = field(default_factory=list)
    """The system_fingerprint of the next answers, the last one for ever."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    prompts: set[str] = field(default_factory=set)
    """The prompts that were asked."""
    cached: set[tuple[str, str | None]] = field(default_factory=set)
    """The prompts that were read, each with its salt."""
    pause: float = 0.0
    """Seconds that an answer takes."""
    tells_names: bool = False
    """Whether its facts make a fingerprint."""
    tells_logprobs: bool = True
    """Of continuations that it is given."""
    busy: int = 0
    busiest: int = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "GET":
            return self._get(path)
        body = json.loads(request.content)
        if path == "/detokenize":
            return httpx.Response(200, json={"prompt": "".join(f"<{t}>" for t in body["tokens"])})
        if path == "/tokenize":
            return httpx.Response(200, json={"tokens": self._ids(body["prompt"])})
        if self.statuses:
            status = self.statuses.pop(0)
            if status == 0:
                raise httpx.ConnectError("refused", request=request)
            return httpx.Response(status, json={"error": {"message": "busy"}})
        self.asked.append(body)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        await asyncio.sleep(self.pause)
        self.busy -= 1
        return self._answer(body)

    def _get(self, path: str) -> httpx.Response:
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": one} for one in self.models]})
        if path == "/metrics" and self.pages:
            return httpx.Response(200, text=self.pages.pop(0) if self.pages[1:] else self.pages[0])
        if path == "/version":
            return httpx.Response(200, json={"version": self.version})
        if path == f"{PREFIX}/state" and self.plugin:
            return httpx.Response(200, json=self.state().as_json())
        if path == f"{PREFIX}/facts" and self.plugin:
            names = NAMES if self.tells_names else {}
            return httpx.Response(200, json={"facts": self.facts, **names})
        return httpx.Response(404, json={})

    def state(self) -> EngineState:
        pin = Capability("request_k", self.pins, self.price if self.pins else "it is too old")
        return engine_state(
            started=1.0, step=1, drafts=1, drafted_per_position=(1,) * 5,
            accepted_per_position=(1,) * 5, running=0, system_fingerprint=None,
            capabilities=(pin,), instance=self.url,
        )  # fmt: skip

    def connect(self) -> CheckedEngine:
        """What a lab asks it through."""
        transport = httpx.MockTransport(self)
        return CheckedEngine(open_client(self.url, transport=transport), transport=transport)

    def _answer(self, body: dict[str, Any]) -> httpx.Response:
        text = self._text(body)
        if text in self.refuse:
            status, message = self.refuse[text]
            return httpx.Response(status, json={"error": {"message": message}})
        if "prompt_logprobs" in body:
            drawn = [token for token in body["prompt"] if token < _SAMPLED]
            return self._weighed(body, len(drawn)) if drawn else self._forced(body)
        if isinstance(body.get("prompt"), list):
            return self._continued(body)
        if body.get("n", 1) > 1:
            return self._sampled(body)
        self.prompts.add(text)
        return self._greedy(body, text)

    def _greedy(self, body: dict[str, Any], text: str) -> httpx.Response:
        pinned = body.get("vllm_xargs", {}).get("specdeck_k") == 0
        key = f"{text} {pinned}"
        self.counts[key] = self.counts.get(key, 0) + 1
        found = self._find_fault(body, text)
        fault = None if pinned else found
        if fault is None and self.counts[key] % 2 == 0:
            fault = self.unrepeatable.get(text)
        written = self.texts.get(text)
        if written is not None and written[0] != written[1] and not pinned:
            fault = Fault(2, 4.0)
        ids, logprobs, tops = self._said(text, body["max_tokens"], fault)
        drafted = None if not self.drafts else 0 if pinned and self.obeys_pins else 3 * len(ids)
        finish = "length" if written is None else "stop"
        told = written[0 if pinned else 1] if written else "".join(f"<{token}>" for token in ids)
        call = self.calls.get(text)
        arguments = None if call is None else call[0 if pinned else 1]
        if body.get("stream"):
            losing = self.stream_loses | (self.pins_lose if pinned else self.drafts_lose)
            lost = told[:-1] if text in losing else told
            last: dict[str, Any] = {"metrics": _metrics(drafted)}
            if self.named:
                last["system_fingerprint"] = self.named[0] + "+k0" * pinned
            return _stream(body, ids, logprobs, tops, lost, self._ids(text), last, arguments)
        choice = _choice(body, ids, logprobs, tops, told, arguments) | {"finish_reason": finish}
        reply = {"choices": [choice], "metrics": _metrics(drafted)}
        if self.named:
            name = self.named.pop(0) if self.named[1:] else self.named[0]
            reply["system_fingerprint"] = name + "+k0" * pinned
        return httpx.Response(200, json=_with_prompt(body, reply, self._ids(text)))

    def _find_fault(self, body: dict[str, Any], text: str) -> Fault | None:
        """What an answer that is not pinned meets; whoever reads a prompt has it cached."""
        read = text, body.get("cache_salt")
        is_cold = read not in self.cached
        self.cached.add(read)
        cold = self.cold_faults.get(text) if is_cold else None
        bare = None if body.get("logprobs") else self.bare_faults.get(text)
        return self.faults.get(text) or cold or bare

    def _said(
        self, text: str, tokens: int, fault: Fault | None
    ) -> tuple[list[int], list[float], list[dict[int, float]]]:
        ids: list[int] = []
        logprobs: list[float] = []
        tops: list[dict[int, float]] = []
        for index in range(tokens):
            own, second, margin = self._likely(text, index)
            if fault and index == fault.index:
                margin = fault.margin
            likely = {own: -0.25, second: -0.25 - margin}
            said = own
            if fault and index == fault.index:
                said = second
                if fault.honest:
                    likely = {own: -0.25 - margin, second: -0.25}
            elif fault and index > fault.index:
                said = own + 7
                likely = {said: -0.25, second: -0.25 - margin}
            ids.append(said)
            logprobs.append(likely[said])
            tops.append(likely)
        return ids, logprobs, tops

    def _likely(self, text: str, index: int) -> tuple[int, int, float]:
        """The target's first and second choice, and how far they lie apart."""
        first, own_margin = _choose(text, index)
        found = (self.faults, self.bare_faults, self.cold_faults, self.unrepeatable)
        fault = next((faults[text] for faults in found if text in faults), None)
        planted = fault is not None and fault.index == index
        margin = fault.margin if planted and fault else own_margin
        return first, first + 1000, margin

    def _forced(self, body: dict[str, Any]) -> httpx.Response:
        tokens, thoughts = body["prompt"], []
        text, start = self._prompt_of(tokens)
        for place, token in enumerate(tokens):
            if place < start:
                thoughts.append(None if place == 0 else {str(token): {"logprob": -1.0, "rank": 1}})
                continue
            own, second, margin = self._likely(text, place - start)
            seen = {own: (-0.25, 1), second: (-0.25 - margin, 2)}
            thoughts.append({str(t): {"logprob": p, "rank": r} for t, (p, r) in seen.items()})
        return httpx.Response(200, json={"choices": [{"prompt_logprobs": thoughts}]})

    def _continued(self, body: dict[str, Any]) -> httpx.Response:
        """What the target generates after given tokens, whatever these are."""
        text, start = self._prompt_of(body["prompt"])
        first = len(body["prompt"]) - start
        likely = [self._likely(text, first + n) for n in range(body["max_tokens"])]
        tops = [{own: -0.25, second: -0.25 - margin} for own, second, margin in likely]
        ids = [own for own, *_ in likely]
        choice = _choice(body, ids, [-0.25] * len(ids), tops, "", None)
        return httpx.Response(200, json={"choices": [choice | {"finish_reason": "length"}]})

    def _prompt_of(self, tokens: list[int]) -> tuple[str, int]:
        """The prompt that tokens begin with, and how many of them it is."""
        known = (t for t in self.prompts if tokens[: len(t)] == self._ids(t))
        text = max(known, key=len)
        return text, len(self._ids(text))

    def answers_asked(self) -> list[dict[str, Any]]:
        """The requests for whole answers: all but looks at tokens that are given."""
        return [body for body in self.asked if not isinstance(body.get("prompt"), list)]

    def _sampled(self, body: dict[str, Any]) -> httpx.Response:
        pinned = body.get("vllm_xargs", {}).get("specdeck_k") == 0
        text = self._text(body)
        self.counts["sampled"] = self.counts.get("sampled", 0) + 1
        random = Random(f"{text} {self.counts['sampled']}")
        bias = 0.0 if pinned or text not in self.faults else 0.35
        choices = []
        for _ in range(body["n"]):
            first = random.choice((1, 2, 3))
            second = 9 if random.random() < bias else random.choice((4, 5, 6, 9))
            drawn = [first, second][: body["max_tokens"]]
            choices.append({"token_ids": drawn, "finish_reason": "length"})
        return httpx.Response(200, json=_with_prompt(body, {"choices": choices}, self._ids(text)))

    def _weighed(self, body: dict[str, Any], drawn: int) -> httpx.Response:
        """What is thought of the tokens that `_sampled` draws."""
        if not self.tells_logprobs:
            return httpx.Response(400, json={"error": {"message": "logprobs are not available"}})
        places: list[dict[str, Any] | None] = [None] * (len(body["prompt"]) - drawn)
        for likely in ((1, 2, 3), (4, 5, 6, 9))[:drawn]:
            said = {"logprob": -math.log(len(likely)), "rank": 1}
            places.append({str(token): said for token in likely})
        return httpx.Response(200, json={"choices": [{"prompt_logprobs": places}]})

    def _text(self, body: dict[str, Any]) -> str:
        if "messages" in body:
            return str(body["messages"][-1]["content"])
        prompt = body["prompt"]
        return prompt if isinstance(prompt, str) else ""

    def _ids(self, text: str) -> list[int]:
        return [ord(c) + self.vocabulary for c in text]


def _choose(text: str, index: int) -> tuple[int, float]:
    """A token that follows from what stands before it, and its margin."""
    random = Random(f"{text} {index}")
    return random.randrange(300, 1000), STEP * random.randrange(9, 90)


def _spelt(likely: dict[int, float]) -> dict[str, float]:
    return {f"token_id:{token}": logprob for token, logprob in likely.items()}


def _choice(
    body: dict[str, Any],
    ids: list[int],
    logprobs: list[float],
    tops: list[dict[int, float]],
    text: str,
    arguments: str | None,
) -> dict[str, Any]:
    role = "delta" if body.get("stream") else "message"
    choice: dict[str, Any] = {"index": 0, "token_ids": ids}
    if "messages" not in body:
        choice["text"] = text
        if "logprobs" in body:
            choice["logprobs"] = {
                "tokens": [f"token_id:{i}" for i in ids],
                "token_logprobs": logprobs,
                "top_logprobs": [_spelt(t) for t in tops],
            }
        return choice
    if body.get("logprobs"):
        choice["logprobs"] = {
            "content": [
                {
                    "token": f"token_id:{i}",
                    "logprob": p,
                    "top_logprobs": [{"token": k, "logprob": v} for k, v in _spelt(t).items()],
                }
                for i, p, t in zip(ids, logprobs, tops, strict=True)
            ]
        }
    choice[role] = {"content": text}
    if arguments is not None:
        call = {"index": 0, "function": {"name": "search", "arguments": arguments}}
        choice[role] = {"content": None, "tool_calls": [call]}
    return choice


def _stream(
    body: dict[str, Any],
    ids: list[int],
    logprobs: list[float],
    tops: list[dict[int, float]],
    text: str,
    prompt: list[int],
    last: dict[str, Any],
    arguments: str | None,
) -> httpx.Response:
    """The answer in events of three tokens; the text, and a call, come with the first.

    `last` is what the event after the last token tells of the whole answer.
    """
    events: list[dict[str, Any]] = []
    for at in range(0, len(ids), 3):
        part = slice(at, at + 3)
        choice = _choice(
            body, ids[part], logprobs[part], tops[part], "" if at else text,
            None if at else arguments,
        )  # fmt: skip
        if at and "delta" in choice:
            choice["delta"] = {}
        events.append({"choices": [choice]})
    if events:
        events[-1]["choices"][0]["finish_reason"] = "length"
    else:
        events.append({"choices": [{"text": "", "finish_reason": "length"}]})
    events[0] = _with_prompt(body, events[0], prompt)
    events.append({"choices": [], **last})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
    return httpx.Response(200, text="".join(lines))


def _with_prompt(body: dict[str, Any], reply: dict[str, Any], ids: list[int]) -> dict[str, Any]:
    if "messages" in body:
        return {**reply, "prompt_token_ids": ids}
    reply["choices"][0]["prompt_token_ids"] = ids
    return reply


def _metrics(drafted: int | None) -> dict[str, Any] | None:
    return None if drafted is None else {"speculative_decoding": {"num_draft_tokens": drafted}}
