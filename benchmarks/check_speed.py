"""How much longer a check takes than its requests alone, on an engine that runs already.

    python -m benchmarks.check_speed URL [--prompts 200] [--tokens 128] [--streams 8] [--rounds 2]

Both are measured in one run and in turn, plain first and last: a plain client sends the very
same requests with the same number at once, and does nothing with the answers but read them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from itertools import chain
from pathlib import Path
from statistics import median

import httpx

from specdeck.engine.control.address import engine_url
from specdeck.engine.control.client import client
from specdeck.engine.divergence import request
from specdeck.engine.divergence.lab import Engine, Lab, Plan, run
from specdeck.engine.divergence.prompts import Prompt, PromptSet, prompts
from specdeck.engine.divergence.request import Settings
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.store import Store


async def plain(url: str, model: str, asked: PromptSet, settings: Settings, streams: int) -> float:
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
                    request.path(prompt),
                    request.body(prompt, settings, model=model, pin=pin, stream=s),
                )
                for pin, s in ((0, False), (None, False), (None, True), (0, True))
            ]

        began = time.monotonic()
        await asyncio.gather(*(one(*each) for each in chain.from_iterable(map(four, asked))))
        return time.monotonic() - began


async def checked(url: str, plan: Plan, asked: PromptSet) -> float:
    """Seconds for a whole check, its store and its verdict included."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        control = client(url)
        began = time.monotonic()
        try:
            async with Lab(Engine(control), None, plan) as lab:
                await run(lab, asked, Checks(store), lambda _: None)
        finally:
            await control.close()
        return time.monotonic() - began


async def measured(options: argparse.Namespace) -> dict[str, object]:
    url = engine_url(options.url)
    settings = Settings(max_tokens=options.tokens)
    asked = prompts("code", options.prompts)
    plan = Plan(settings=settings, streams=options.streams)
    async with Lab(Engine(client(url)), None, plan) as lab:
        model = lab.arms[0].model
    alone, whole = [], []
    await plain(url, model, prompts("code", 2 * options.streams), settings, options.streams)
    for _ in range(options.rounds):
        alone.append(await plain(url, model, asked, settings, options.streams))
        whole.append(await checked(url, plan, asked))
    alone.append(await plain(url, model, asked, settings, options.streams))
    return {
        "prompts": asked.count,
        "tokens": options.tokens,
        "streams": options.streams,
        "plain_seconds": [round(s, 1) for s in alone],
        "check_seconds": [round(s, 1) for s in whole],
        "ratio": round(median(whole) / median(alone), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    print(json.dumps(asyncio.run(measured(parser.parse_args()))))


if __name__ == "__main__":
    main()
