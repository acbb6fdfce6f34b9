"""Asks an engine the probe set, several times, on its serving path and target-only.

Greedy, one probe after the other: batches of another shape are another program, and what
is measured is the engine and not its traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from specdeck.engine.errors import BadPage, EngineError, NotAnEngine, SpecdeckError, Unsupported
from specdeck.engine.fingerprint.behaviour import Answer, Behaviour, settled
from specdeck.engine.metrics.page import parse

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.control.protocol import EngineState

RUNS = 3
TOKENS = 16
"""Of each answer: enough for a small difference to grow into another token."""

PIN = {"specdeck_k": 0}
"""Has the engine answer one request without drafts."""

PROBES = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8, 13, 21,",
    '{"name": "search", "arguments": {"limit": 50, "query": "',
    "Translate to German: The weather is nice today.\n",
    "SELECT customer_id, SUM(amount) FROM orders WHERE",
    "Once upon a time, in a village by the sea,",
    "The derivative of x**3 + 2*x with respect to x is",
    "import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, path):\n        ",
    "Q: What is 17 * 23?\nA:",
    "東京は日本の",
    "<html>\n  <head>\n    <title>",
    "a" * 64,
    "error: cannot borrow `x` as mutable because it is also borrowed as",
    "Dear Sir or Madam,\n\nI am writing to",
    "\n\n\n\t\t0.125 0.25 0.5 ",
)
"""Fixed: words, code, figures, JSON, other scripts, repetition. See behaviour.PROBE_SET."""


async def probed(
    client: EngineClient,
    *,
    runs: int = RUNS,
    tokens: int = TOKENS,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Behaviour:
    """What the engine answers, and how far it agreed with itself over `runs` repetitions.

    `told` hears how many answers came, and of how many. Raises EngineError when the engine
    was started anew or its path moved in between: half of the answers would be another
    engine's.
    """
    (model, *_) = await client.models() or ("",)
    before = await _state(client)
    started = await _process_start(client) if before is None else None
    arms, missing = _arms(before)
    found: dict[str, list[list[Answer]]] = {arm: [] for arm in arms}
    done, of = 0, runs * len(arms) * len(PROBES)
    for _ in range(runs):
        for arm, more in arms.items():
            answers = []
            for prompt in PROBES:
                answers.append(await _answer(client, model, prompt, tokens, more))
                done += 1
                told(done, of)
            found[arm].append(answers)
    after = await _state(client)
    if before is None:
        another = started != await _process_start(client)
    else:
        another = after is None or before.instance != after.instance
    if another:
        raise EngineError(f"{client.url} was started anew in mid-probe", remedy="probe it again")
    if before and after and before.fingerprint != after.fingerprint:
        raise EngineError(f"the path of {client.url} moved in mid-probe", remedy="probe it again")
    return settled(found, missing)


def _arms(state: EngineState | None) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What each arm adds to a request, and the arms that cannot be asked with the reason."""
    if state is None:
        return {"serving": {}}, ["target-only: the engine runs without the specdeck plugin"]
    if state.method is None:
        return {"serving": {}}, []  # it is target-only as it is
    can = state.can("request_k")
    if not can.available:
        return {"serving": {}}, [f"target-only: {can.reason or 'this engine cannot'}"]
    return {"serving": {}, "target-only": {"vllm_xargs": PIN}}, []


async def _state(client: EngineClient) -> EngineState | None:
    try:
        return await client.state()
    except Unsupported:
        return None


async def _process_start(client: EngineClient) -> float | None:
    """When the engine was started, by its metrics page; None where that does not tell."""
    try:
        return parse(await client.page(), t=0.0, at=0.0).process_start
    except (NotAnEngine, BadPage):
        return None


async def _answer(
    client: EngineClient, model: str, prompt: str, tokens: int, more: dict[str, Any]
) -> Answer:
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "seed": 0,
        "logprobs": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **more,
    }
    try:
        reply = await client.complete(body)
    except SpecdeckError as error:
        raise EngineError(f"the probe got no answer: {error.line()}") from error
    try:
        choice = reply["choices"][0]
        logprobs = tuple(float(x) for x in choice["logprobs"]["token_logprobs"])
        found = Answer(tuple(int(i) for i in choice["token_ids"]), logprobs)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NotAnEngine(f"{client.url} answers a probe as no vLLM does") from error
    if len(found.tokens) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise NotAnEngine(f"{client.url} answers a probe with log-probabilities that are none")
    return found
