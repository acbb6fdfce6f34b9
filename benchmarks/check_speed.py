"""How much longer a check takes than its requests alone, on the demo's engine or another.

    python -m benchmarks.check_speed [URL] [--prompts 200] [--tokens 128] [--streams 8]
                                     [--segment 40] [--state FILE] [--seconds S]

A plain client sends the very same requests with the same number at once, and does nothing with
the answers but read them. Both take the prompts in segments and in turn, each second pair the
other way round, as the speed of a shared machine drifts; every segment of the check pays for its
opening, its store and its verdict. Segments that are done lie in the state file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import httpx
from benchmarks.engines import start_engine, table
from tests.support.checks import finish_check

from specdeck.engine.client.address import engine_url
from specdeck.engine.client.engine_client import open_client
from specdeck.engine.divergence import requests
from specdeck.engine.divergence.prompts import Prompt, PromptSet, load_prompts
from specdeck.engine.divergence.requests import RequestSettings
from specdeck.engine.operations.check import ArmPair, CheckedEngine, CheckOptions
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store

Pair = tuple[float, float]
"""Seconds of the plain client, and of the check."""


async def time_plain_client(
    url: str, model: str, asked: PromptSet, settings: RequestSettings, streams: int
) -> float:
    """Seconds for the same requests: each prompt twice pinned and twice not, half streamed."""
    gate = asyncio.Semaphore(streams)
    limits = httpx.Limits(max_connections=streams + 2)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits, trust_env=False) as http:

        async def one(path: str, body: dict[str, object]) -> None:
            async with gate, http.stream("POST", path, json=body) as response:
                response.raise_for_status()
                async for _ in response.aiter_raw():
                    pass

        def four(prompt: Prompt) -> list[tuple[str, dict[str, object]]]:
            return [
                (
                    requests.request_path(prompt),
                    requests.request_body(prompt, settings, model=model, pin=pin, stream=s),
                )
                for pin, s in ((0, False), (None, False), (None, True), (0, True))
            ]

        began = time.monotonic()
        await asyncio.gather(*(one(*each) for each in chain.from_iterable(map(four, asked))))
        return time.monotonic() - began


async def time_check(url: str, wanted: CheckOptions, asked: PromptSet) -> float:
    """Seconds for a whole check, its store and its verdict included."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        control = open_client(url)
        began = time.monotonic()
        try:
            async with ArmPair(CheckedEngine(control), None, wanted) as arms:
                await finish_check(arms, asked, Checks(store))
        finally:
            await control.close()
        return time.monotonic() - began


def segments(folder: Path, count: int, size: int) -> Iterator[PromptSet]:
    """The bundled prompts, so many at a time."""
    numbered = list(load_prompts("code", count))
    for start in range(0, count, size):
        path = folder / f"{start}.jsonl"
        part = numbered[start : start + size]
        path.write_text("".join(json.dumps(dict(one.body)) + "\n" for one in part))
        yield load_prompts(path)


async def time_pair(url: str, asked: PromptSet, options: argparse.Namespace, *, swap: bool) -> Pair:
    """Seconds of the plain client and of the check for one segment."""
    settings = RequestSettings(max_tokens=options.tokens)
    wanted = CheckOptions(max_tokens=options.tokens, streams=options.streams)
    whole = await time_check(url, wanted, asked) if swap else 0.0
    alone = await time_plain_client(url, "demo", asked, settings, options.streams)
    return alone, whole if swap else await time_check(url, wanted, asked)


def measure(url: str, options: argparse.Namespace) -> list[Pair]:
    """What is done of the segments, after doing more of them."""
    done: list[Pair] = []
    if options.state and options.state.exists():
        done = [(a, b) for a, b in json.loads(options.state.read_text())]
    ends = time.monotonic() + options.seconds
    settings = RequestSettings(max_tokens=options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        parts = list(segments(Path(folder), options.prompts, options.segment))
        if len(done) < len(parts):  # nothing is compiled or cached before the first
            warm = load_prompts("code", 2 * options.streams)
            asyncio.run(time_plain_client(url, "demo", warm, settings, options.streams))
        for number, part in enumerate(parts[len(done) :], start=len(done)):
            if time.monotonic() > ends:
                break
            done.append(asyncio.run(time_pair(url, part, options, swap=number % 2 == 1)))
            if options.state:
                options.state.write_text(json.dumps(done))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--segment", type=int, default=40)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    if options.url:
        done = measure(engine_url(options.url), options)
    else:
        with start_engine() as served:
            done = measure(served.url, options)
    rows = [[str(n), f"{a:.1f}", f"{b:.1f}", f"{b / a:.3f}"] for n, (a, b) in enumerate(done, 1)]
    alone, whole = (sum(one) for one in zip(*done, strict=True))
    rows.append(["all", f"{alone:.1f}", f"{whole:.1f}", f"{whole / alone:.3f}"])
    size = f"{options.prompts} prompts x {options.tokens} tokens x 4 requests"
    print(f"{size}, {options.streams} streams, budget 1.1; {options.segment} prompts a segment\n")
    print(table(["segment", "plain client, s", "check, s", "ratio"], rows))


if __name__ == "__main__":
    main()
