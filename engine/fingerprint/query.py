"""Asks an engine for its fingerprint: in full with the plugin, in part without it.

Its behaviour is asked of the probe set, greedy, one probe after the other: batches of another
shape are another program, and what is measured is the engine and not its traffic.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from specdeck.engine.client.life import Life, fetch_life
from specdeck.engine.errors import EngineError, NotAnEngine, SpecdeckError, Unsupported
from specdeck.engine.fingerprint.behaviour import (
    Behaviour,
    Probe,
    ProbeAnswer,
    probes_to_ask,
    read_answer,
    settle,
)
from specdeck.engine.fingerprint.fingerprint import (
    STALLED_S,
    Fingerprint,
    Progress,
    Unread,
    limit_unread,
    refuse_long_places,
)
from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.fingerprint.name_check import doubts_of
from specdeck.engine.metrics.page import read_page
from specdeck.engine.protocol.codec import WrongType, read_record, read_value
from specdeck.engine.protocol.messages import EngineState

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

POLL_S = 0.5
PATIENCE_S = 600.0
"""How long the engine may take to read its weights before a name is asked of it."""

OnProgress = Callable[[Progress, float], None]
"""How far the reading is, and for how many seconds it has got no further."""

_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LONGEST = 4_000
"""Characters of that line; vLLM's has a thousand."""
_STEADY = ("block_size", "cache_dtype", "enable_prefix_caching", "prefix_caching_hash_algo",
           "sliding_window", "mamba_cache_dtype", "mamba_ssm_cache_dtype")  # fmt: skip
"""Labels that do not differ between two starts, as the number of blocks does."""

WITHOUT_PLUGIN = "only the specdeck plugin can tell"
_INSIDE = ("model", "runtime", "environment", "config", "live")


async def fetch_fingerprint(
    client: EngineClient, *, wall: Callable[[], float] = time.time, ask_own: bool = True
) -> Fingerprint:
    """The fingerprint at this moment, be it partial.

    Without the plugin it is what can be known from outside; vLLM's own fingerprint
    then costs a completion of one token, unless `ask_own` is False.
    """
    try:
        reply = await client.facts()
    except Unsupported:
        return await fetch_from_outside(client, wall=wall, ask_own=ask_own)
    found = parse_reply(reply, url=client.url, t=wall())
    return replace(found, unread=limit_unread((*doubts_of(found), *found.unread)))


async def fetch_finished(
    client: EngineClient,
    *,
    on_progress: OnProgress = lambda progress, stalled_s: None,
    wall: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    patience_s: float = PATIENCE_S,
) -> Fingerprint:
    """The fingerprint once the engine has read its own weights; `on_progress` hears how far it is.

    Raises EngineError when that takes longer than `patience_s`, or gets no further for `STALLED_S`.
    """
    ends = clock() + patience_s
    place, since = None, clock()
    while True:
        seen = await fetch_fingerprint(client, wall=wall)
        if seen.progress.finished:
            return seen
        if seen.progress.place != place:
            place, since = seen.progress.place, clock()
        stalled_s = clock() - since
        on_progress(seen.progress, stalled_s)
        if stalled_s >= STALLED_S:
            raise EngineError(
                f"{client.url} has got no further for {stalled_s:.0f} s: {seen.progress.line()}",
                remedy="see its log, and the disk that its weights lie on",
            )
        if clock() >= ends:
            raise EngineError(
                f"{client.url} has been {seen.progress.line()} for {patience_s:.0f} s",
                remedy="ask again later",
            )
        await sleep(POLL_S)


def parse_reply(reply: dict[str, Any], *, url: str, t: float) -> Fingerprint:
    """What the plugin answered, names and facts as they came.

    Raises Unsupported for a plugin that knows no layers.
    """
    if "names" not in reply:
        raise Unsupported(
            "the engine's specdeck plugin is older than its fingerprints",
            remedy="update specdeck there and start it again",
        )
    try:
        told = read_record(_Told, reply)
        refuse_long_places(told.facts)
    except WrongType as error:
        raise NotAnEngine(f"{url} answers with facts that are not specdeck's: {error}") from error
    return Fingerprint(
        t=t,
        url=url,
        build=told.names.build,
        path=told.names.path,
        facts=told.facts,
        unread=limit_unread(told.partial),
        system_fingerprint=told.system_fingerprint,
        is_own_asked=True,
        stamped=told.responses is not None and told.responses.stamped,
        instance=told.instance,
        progress=told.progress,
    )


class _Names(NamedTuple):
    build: str
    path: str


class _Responses(NamedTuple):
    stamped: bool = False


class _Told(NamedTuple):
    """The reply to `GET /v1/specdeck/facts`."""

    names: _Names
    facts: dict[str, Any]
    partial: tuple[Unread, ...]
    progress: Progress
    system_fingerprint: str | None = None
    responses: _Responses | None = None
    instance: str | None = None


async def fetch_from_outside(
    client: EngineClient, *, wall: Callable[[], float] = time.time, ask_own: bool = True
) -> Fingerprint:
    """What can be known of an engine without the plugin; the rest is named as unknown."""
    models = await client.models()
    page = await client.page()
    facts: dict[str, Any] = {
        "engine": {"vllm": await client.version()},
        "outside": {
            "served": list(models),
            "k_max": (await read_page(page, t=0.0, at=0.0)).k_max,
            "cache": cache_labels(page),
        },
    }
    own = await fetch_system_fingerprint(client, models[0]) if ask_own and models else None
    build, path = compute_names(facts, partial=True)
    unread = tuple(Unread(fact, WITHOUT_PLUGIN) for fact in _INSIDE)
    return Fingerprint(wall(), client.url, build, path, facts, unread, own, is_own_asked=ask_own)


async def fetch_system_fingerprint(client: EngineClient, model: str) -> str | None:
    """vLLM's own, which only a response carries; None where it cannot be had."""
    body = {"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}
    try:
        found = (await client.complete(body, timeout_s=30.0)).get("system_fingerprint")
    except SpecdeckError:
        return None
    return found if isinstance(found, str) else None


def cache_labels(page: str) -> dict[str, str]:
    """What the metrics page tells of the KV cache, less what differs with every start.

    >>> cache_labels('vllm:cache_config_info{block_size="32",num_gpu_blocks="99"} 1.0')
    {'block_size': '32'}
    """
    found = _CACHE.search(page)
    told = found is not None and len(found[1]) < _LONGEST
    labels = dict(_LABEL.findall(found[1])) if found and told else {}
    return {name: labels[name] for name in _STEADY if name in labels}


RUNS = 3
TOKENS = 16
"""Of each answer: enough for a small difference to grow into another token."""

PIN = {"specdeck_k": 0}
"""Has the engine answer one request without drafts."""

NO_LOGPROBS = "no-logprobs"
"""The arm that serves as most clients ask it. An engine may take another way there, which shows in
tokens alone."""

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


async def probe_behaviour(
    client: EngineClient,
    *,
    runs: int = RUNS,
    tokens: int = TOKENS,
    since: Life | None = None,
    path: str | None = None,
    beside: Behaviour | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Behaviour:
    """What the engine answers, and how far it agreed with itself over `runs` repetitions.

    After these, single probes are asked on: `probes_to_ask` says which, for a comparison with
    `beside`. `since` and `path` are the start and the path that facts were told of, which the
    behaviour is to go with. `on_progress` hears how many answers came, and of how many. Raises
    EngineError when the engine was restarted or its path changed since, or in between: half of
    the answers would be another engine's.
    """
    (model, *_) = await client.models() or ("",)
    before, life = await _look(client)
    arms, missing = _arms(before)
    if beside is not None and NO_LOGPROBS not in beside.arms:
        arms.pop(NO_LOGPROBS)  # an older pin, which has nothing to compare it with
    done, of = 0, runs * len(arms) * len(PROBES)

    async def ask(arm: str, number: int) -> ProbeAnswer:
        nonlocal done
        answer = await _answer(client, model, PROBES[number], tokens, arms[arm])
        done += 1
        on_progress(done, of)
        return answer

    found: dict[str, list[list[ProbeAnswer]]] = {arm: [] for arm in arms}
    for _ in range(runs):
        for arm in arms:
            found[arm].append([await ask(arm, number) for number in range(len(PROBES))])
    behaviour = settle(found, missing)
    further: dict[Probe, list[ProbeAnswer]] = {}
    while wanted := probes_to_ask(behaviour, beside):
        of += len(wanted)
        for probe in wanted:
            further.setdefault(probe, []).append(await ask(*probe))
        behaviour = settle(found, missing, further)
    after, life_after = await _look(client)
    if life_after.is_another(since or life):
        raise EngineError(f"{client.url} restarted during the probe", remedy="probe it again")
    paths = [state.fingerprint for state in (before, after) if state]
    if len({*paths, *([] if path is None or None in paths else [path])}) > 1:
        raise EngineError(
            f"{client.url} changed its path during the probe", remedy="probe it again"
        )
    return behaviour


def _arms(state: EngineState | None) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What each arm adds to a request, and the arms that cannot be asked with the reason."""
    serving: dict[str, dict[str, Any]] = {"serving": {}, NO_LOGPROBS: {"logprobs": None}}
    if state is None:
        return serving, ["target-only: the engine runs without the specdeck plugin"]
    if state.method is None:
        return serving, []  # it is target-only as it is
    can = state.can("request_k")
    if not can.available:
        return serving, [f"target-only: {can.reason or 'this engine cannot'}"]
    return serving | {"target-only": {"vllm_xargs": PIN}}, []


async def fetch_with_behaviour(
    client: EngineClient,
    *,
    beside: Behaviour | None = None,
    on_progress: OnProgress = lambda progress, stalled_s: None,
    on_answer: Callable[[int, int], None] = lambda done, of: None,
) -> Fingerprint:
    """The finished fingerprint and the behaviour of one and the same start and path.

    `beside` is the behaviour that it is to be compared with, which takes more answers. Raises
    EngineError where the engine is another by the end, or its path changed.
    """
    life = await fetch_life(client)
    found = await fetch_finished(client, on_progress=on_progress)
    # From outside a name is of other facts than the plugin's, which came or went if it differs.
    path = None if found.stamped is None else found.path
    behaviour = await probe_behaviour(
        client, since=life, path=path, beside=beside, on_progress=on_answer
    )
    return replace(found, behaviour=behaviour)


async def _look(client: EngineClient) -> tuple[EngineState | None, Life]:
    """What the plugin says, None without it, and which start of the engine says so."""
    try:
        state = await client.state()
    except Unsupported:
        return None, await fetch_life(client)
    return state, Life(state.instance)


async def _answer(
    client: EngineClient, model: str, prompt: str, tokens: int, more: dict[str, Any]
) -> ProbeAnswer:
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
        choice = read_value(_CHOICES, reply.get("choices"), "choices")[0]
        asked = body["logprobs"] is not None and choice.logprobs
        found = read_answer(choice.token_ids, asked.token_logprobs if asked else ())
    except (WrongType, IndexError, ValueError) as error:
        raise NotAnEngine(f"{client.url} sent an unexpected response to a probe") from error
    told = len(found.tokens) if body["logprobs"] is not None else 0
    if len(found.tokens) > tokens or len(found.logprobs) != told:
        raise NotAnEngine(f"{client.url} sent an unexpected response to a probe")
    return found


class _Logprobs(NamedTuple):
    token_logprobs: tuple[float, ...]


class _Choice(NamedTuple):
    token_ids: tuple[int, ...]
    logprobs: _Logprobs | None = None


_CHOICES = tuple[_Choice, ...]
