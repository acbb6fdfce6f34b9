"""Asks an engine for its fingerprint: in full with the plugin, in part without it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from specdeck.engine.errors import EngineError, NotAnEngine, SpecdeckError, Unsupported
from specdeck.engine.fingerprint.seen import Progress, Seen, Unread, names_of
from specdeck.engine.metrics.page import parse

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

POLL_S = 0.5
PATIENCE_S = 600.0
"""How long the engine may take to read its weights before a name is asked of it."""

Told = Callable[[Progress], None]

_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_STEADY = ("block_size", "cache_dtype", "enable_prefix_caching", "prefix_caching_hash_algo",
           "sliding_window", "mamba_cache_dtype", "mamba_ssm_cache_dtype")  # fmt: skip
"""Labels that do not differ between two starts, as the number of blocks does."""

WITHOUT_PLUGIN = "only the specdeck plugin can tell"
_INSIDE = ("model", "runtime", "environment", "config", "live")


async def look(
    client: EngineClient, *, wall: Callable[[], float] = time.time, ask_own: bool = True
) -> Seen:
    """The fingerprint at this moment, be it partial.

    Without the plugin it is what can be known from outside; vLLM's own fingerprint
    then costs a completion of one token, unless `ask_own` is False.
    """
    try:
        reply = await client.facts()
    except Unsupported:
        return await outside(client, wall=wall, ask_own=ask_own)
    return from_reply(reply, url=client.url, t=wall())


async def finished(
    client: EngineClient,
    *,
    told: Told = lambda _: None,
    wall: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    patience_s: float = PATIENCE_S,
) -> Seen:
    """The fingerprint once the engine has read its own weights; `told` hears how far it is.

    Raises EngineError when that takes longer than `patience_s`.
    """
    ends = clock() + patience_s
    while True:
        seen = await look(client, wall=wall)
        if seen.progress.finished:
            return seen
        told(seen.progress)
        if clock() >= ends:
            raise EngineError(
                f"{client.url} has been {seen.progress.line()} for {patience_s:.0f} s",
                remedy="ask again later",
            )
        await sleep(POLL_S)


def from_reply(reply: dict[str, Any], *, url: str, t: float) -> Seen:
    """What the plugin answered; raises Unsupported for a plugin that knows no layers."""
    try:
        names = reply["names"]
    except KeyError:
        raise Unsupported(
            "the engine's specdeck plugin is older than its fingerprints",
            remedy="update specdeck there and start it again",
        ) from None
    known = Progress.__dataclass_fields__
    try:
        return Seen(
            t=t,
            url=url,
            build=str(names["build"]),
            path=str(names["path"]),
            facts=dict(reply["facts"]),
            unread=tuple(Unread(str(u["fact"]), str(u["reason"])) for u in reply["partial"]),
            system_fingerprint=reply.get("system_fingerprint"),
            stamped=bool((reply.get("responses") or {}).get("stamped")),
            instance=reply.get("instance"),
            progress=Progress(**{k: v for k, v in reply["progress"].items() if k in known}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotAnEngine(f"{url} answers with facts that are not specdeck's") from error


async def outside(
    client: EngineClient, *, wall: Callable[[], float] = time.time, ask_own: bool = True
) -> Seen:
    """What can be known of an engine without the plugin; the rest is named as unknown."""
    models = await client.models()
    page = await client.page()
    facts: dict[str, Any] = {
        "engine": {"vllm": await client.version()},
        "outside": {
            "served": list(models),
            "k_max": parse(page, t=0.0, at=0.0).k_max,
            "cache": cache_labels(page),
        },
    }
    own = await own_fingerprint(client, models[0]) if ask_own and models else None
    build, path = names_of(facts, partial=True)
    unread = tuple(Unread(fact, WITHOUT_PLUGIN) for fact in _INSIDE)
    return Seen(wall(), client.url, build, path, facts, unread, own)


async def own_fingerprint(client: EngineClient, model: str) -> str | None:
    """vLLM's own, which only a response carries; None where it cannot be had."""
    body = {"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}
    try:
        found = (await client.complete(body, timeout_s=30.0)).get("system_fingerprint")
    except SpecdeckError:
        return None
    return str(found) if found is not None else None


def cache_labels(page: str) -> dict[str, str]:
    """What the metrics page tells of the KV cache, less what differs with every start.

    >>> cache_labels('vllm:cache_config_info{block_size="32",num_gpu_blocks="99"} 1.0')
    {'block_size': '32'}
    """
    found = _CACHE.search(page)
    labels = dict(_LABEL.findall(found[1])) if found else {}
    return {name: labels[name] for name in _STEADY if name in labels}
