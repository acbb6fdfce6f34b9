"""What being watched costs an engine: throughput with plugin and console over without.

    python -m benchmarks.overhead [--rounds 12] [--seconds 4] [--policy goodput]

Two engines of one config run side by side, one of them without the plugin. Each round
loads one, then the other, in an order that alternates; while the engine with the plugin
is loaded, it is followed once a second, as a console follows it.

With `--policy` that policy chooses k in the engine with the plugin, and nobody follows it.
Both engines then have a k_max so small that it is the best k by far, and stock vLLM's own: the
policy has nothing to change, and what it costs, its tries of other k's included, is all that
differs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.engines import (
    DEMO,
    RunningEngine,
    middle,
    put_under_load,
    start_engine,
    table,
    window,
)

from specdeck.engine.metrics.scrape import readings
from specdeck.engine.protocol.messages import Change, Policy

STREAMS = 4
PINNED_K = 2
"""The k_max of `--policy`; on predictable text at four streams each k below it is far slower."""
LEARN_S = 10.0


@contextlib.asynccontextmanager
async def follow(engine: RunningEngine, is_on: bool) -> AsyncIterator[None]:
    """A console's readings, once a second."""
    if not is_on:
        yield
        return
    client = engine.client()

    async def look() -> None:
        async for _ in readings(client, every=1.0):
            pass

    task = asyncio.create_task(look())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()


async def measure_speed(
    engine: RunningEngine, *, watched: bool, seconds: float, seed: int
) -> float:
    """Tokens per second under the load."""
    client = engine.client()
    async with (
        put_under_load(engine.url, "predictable", STREAMS, seed=seed),
        follow(engine, watched),
    ):
        seen = await window(client, seconds)
    await client.close()
    return seen.tokens_per_second or 0.0


async def steer(engine: RunningEngine, policy: Policy) -> None:
    """Puts `policy` in force, and lets it learn."""
    client = engine.client()
    await client.put(Change(policy=policy, who="benchmark"))
    async with put_under_load(engine.url, "predictable", STREAMS, seed=10**6):
        await asyncio.sleep(LEARN_S)
    await client.close()


async def compare(plain: RunningEngine, engine: RunningEngine, options: argparse.Namespace) -> None:
    """Print the ratio of each round and their median."""
    rounds, seconds, watch = options.rounds, options.seconds, options.policy is None
    if not watch:
        await steer(engine, options.policy)
    ratios, speeds = [], []
    for turn in range(rounds):
        order = [(plain, False), (engine, True)]
        found = {}
        for which, watched in order if turn % 2 == 0 else reversed(order):
            found[watched] = await measure_speed(
                which, watched=watched and watch, seconds=seconds, seed=turn
            )
        ratios.append(found[True] / found[False])
        speeds.append(found[False])
    rows = [[f"{min(ratios):.3f}", f"{middle(ratios):.3f}", f"{max(ratios):.3f}"]]
    print(f"{rounds} rounds, {STREAMS} streams, {middle(speeds):.0f} tok/s without.\n")
    print(table(["with / without: lowest", "median", "highest"], rows))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--policy", choices=["threshold", "goodput"])
    options = parser.parse_args(argv)
    pinned: dict[str, Any] = {}
    if options.policy:
        pinned["speculative_config"] = json.dumps(speculation(PINNED_K))
    with start_engine(plugin=False, **pinned) as plain, start_engine(**pinned) as engine:
        asyncio.run(compare(plain, engine, options))


def speculation(k_max: int) -> dict[str, object]:
    """The demo's speculative_config with another k_max."""
    draft = DEMO.parent / "models" / "draft"
    return {"method": "draft_model", "model": str(draft), "num_speculative_tokens": k_max}


if __name__ == "__main__":
    main()
