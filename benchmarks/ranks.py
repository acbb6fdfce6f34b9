"""Engines of several ranks: how long a change of k takes, and what it alters: nothing.

    python -m benchmarks.ranks [--changes 100] [SAMPLE...]

Each is the engine of a file in `sample_configs`. Four greedy requests run at a time while k goes
from one random depth to another; every output is compared with that of target-only (k = 0).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from itertools import pairwise

import httpx
from benchmarks.control_latency import complete, high
from benchmarks.engines import DEMO, RunningEngine, middle, start_engine, table

from specdeck.engine.protocol.messages import Change, EngineState

SAMPLES = ("demo-tp2", "demo-dp2")
STREAMS = 4
PAUSE_S = 0.02
HEAD = ["sample", "changes", "change, p50 ms", "p95 ms", "step, p50 ms", "p95 ms", "requests",
        "differ from target-only", "ranks that drafted"]  # fmt: skip


async def fly(engine: RunningEngine, changes: int) -> list[str]:
    """The figures of one engine, for a row of the table."""
    rng = random.Random(5)
    client = engine.client()
    k_max = (await client.state()).k_max
    prompts = [[rng.randrange(300, 1900) for _ in range(24)] for _ in range(STREAMS)]
    acks: list[float] = []
    right: list[bool] = []
    async with httpx.AsyncClient(base_url=engine.url, timeout=120, trust_env=False) as http:
        await client.put(Change(k=0, who="benchmark"))
        wanted = await asyncio.gather(*(complete(http, prompt) for prompt in prompts))
        before = await client.state()
        while len(acks) < changes:
            batch = asyncio.gather(*(complete(http, prompt) for prompt in prompts))
            while not batch.done() and len(acks) < changes:
                began = time.perf_counter()
                await client.put(Change(k=rng.randint(0, k_max), who="benchmark"))
                acks.append((time.perf_counter() - began) * 1e3)
                await asyncio.sleep(PAUSE_S)
            right += [a == b for a, b in zip(await batch, wanted, strict=True)]
    after, steps = await client.state(), await client.steps(before.step)
    await client.close()
    taken = [step.seconds * 1e3 for step in steps if step.seconds is not None]
    pairs = zip(count_drafts(after), count_drafts(before), strict=True)
    drafted = sum(more > drafts for more, drafts in pairs)
    assert all(b.step > a.step for a, b in pairwise(steps))
    return [
        str(len(acks)),
        *(f"{value:.1f}" for value in (middle(acks), high(acks), middle(taken), high(taken))),
        str(len(right)),
        str(right.count(False)),
        f"{drafted} of {len(after.ranks) or 1}",
    ]


def count_drafts(state: EngineState) -> list[int]:
    """Those of each rank."""
    return [rank.drafts for rank in state.ranks] or [state.drafts]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("samples", nargs="*", default=SAMPLES)
    options = parser.parse_args()
    rows = []
    for sample in options.samples:
        with start_engine(path=DEMO.with_name(f"{sample}.yaml")) as engine:
            rows.append([sample, *asyncio.run(fly(engine, options.changes))])
    print(table(HEAD, rows))


if __name__ == "__main__":
    main()
