"""How long a change of k takes under load, and what it costs the requests: nothing.

    python -m benchmarks.control_latency [--changes 200]

Eight streams. Each PUT is timed beside the engine's own steps of the same run, since an
acknowledgement waits for the step under way. Then greedy outputs with k changing all the
time are compared with those of an engine left alone.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from itertools import pairwise

import httpx
from benchmarks.engines import middle, put_under_load, start_engine, table

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.protocol.messages import Change

STREAMS = 8
PAUSE_S = 0.05


def high(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


async def time_changes(client: EngineClient, url: str, changes: int) -> None:
    """Print acknowledgement against step time."""
    rng = random.Random(3)
    k_max = (await client.state()).k_max
    acks = []
    async with put_under_load(url, "predictable", STREAMS) as load:
        failed = load.failed
        since = (await client.state()).step
        for _ in range(changes):
            began = time.perf_counter()
            await client.put(Change(k=rng.randint(0, k_max), who="benchmark"))
            acks.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(PAUSE_S)
        steps = await client.steps(since)
        failed = load.failed - failed
    durations = [(b.t - a.t) * 1e3 for a, b in pairwise(steps) if b.step == a.step + 1]
    rows = [
        ["change acknowledged", f"{middle(acks):.1f}", f"{high(acks):.1f}"],
        ["engine step", f"{middle(durations):.1f}", f"{high(durations):.1f}"],
    ]
    print(table([f"{changes} changes, {STREAMS} streams", "p50, ms", "p95, ms"], rows))
    over = high(acks) - high(durations)
    print(f"\np95 of the change less p95 of a step: {over:.1f} ms (budget 20); failed: {failed}")


async def compare_outputs(client: EngineClient, url: str, changes: int) -> None:
    """Print how many greedy outputs differ when k never stands still."""
    rng = random.Random(4)
    k_max = (await client.state()).k_max
    prompts = [[rng.randrange(300, 1900) for _ in range(24)] for _ in range(STREAMS)]
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        await client.put(Change(k=k_max, who="benchmark"))
        wanted = await asyncio.gather(*(complete(http, prompt) for prompt in prompts))
        made = 0
        outputs: list[bool] = []
        while made < changes:
            batch = asyncio.gather(*(complete(http, prompt) for prompt in prompts))
            while not batch.done():
                await client.put(Change(k=rng.randint(0, k_max), who="benchmark"))
                made += 1
                await asyncio.sleep(0.02)
            outputs += [a == b for a, b in zip(await batch, wanted, strict=True)]
    wrong = outputs.count(False)
    print(f"{made} changes over {len(outputs)} greedy requests of 256 tokens: {wrong} differ")


async def complete(http: httpx.AsyncClient, prompt: list[int]) -> list[int]:
    """Token ids of one continuation."""
    body = {"model": "demo", "prompt": prompt, "max_tokens": 256, "temperature": 0}
    reply = await http.post(
        "/v1/completions", json=body | {"ignore_eos": True, "return_token_ids": True}
    )
    ids: list[int] = reply.raise_for_status().json()["choices"][0]["token_ids"]
    return ids


async def measure(client: EngineClient, url: str, changes: int) -> None:
    await time_changes(client, url, changes)
    await compare_outputs(client, url, changes)
    await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--changes", type=int, default=200)
    options = parser.parse_args()
    with start_engine() as engine:
        asyncio.run(measure(engine.client(), engine.url, options.changes))


if __name__ == "__main__":
    main()
