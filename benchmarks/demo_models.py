"""What speculation is worth on the demo pair: acceptance, and throughput at every k.

    python -m benchmarks.demo_models [--seconds 4] [--rounds 2]

One engine; k is changed live, and every k is visited once in each round, so that drift
of the machine hits all of them alike. Throughput is given as a ratio to k=0.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict

from benchmarks.engines import middle, put_under_load, start_engine, table, window

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.protocol.messages import Change

PROFILES = ("predictable", "hard")
STREAMS = (1, 4, 8)
SETTLE_S = 0.5
"""Between a change of k and the window that measures it."""

Cell = tuple[str, int, int]
"""Profile, streams, k."""


async def visit_cells(
    client: EngineClient, url: str, ks: list[int], seconds: float, rounds: int
) -> tuple[dict[Cell, list[float]], dict[str, list[float]]]:
    """Tokens per second in each cell, and acceptance per position at the largest k."""
    speeds: dict[Cell, list[float]] = defaultdict(list)
    accepted: dict[str, list[float]] = {}
    for profile in PROFILES:
        for streams in STREAMS:
            async with put_under_load(url, profile, streams):
                for turn in range(rounds):
                    for k in ks if turn % 2 == 0 else reversed(ks):
                        await client.put(Change(k=k, who="benchmark"))
                        await asyncio.sleep(SETTLE_S)
                        seen = await window(client, seconds)
                        speeds[profile, streams, k].append(seen.tokens_per_second or 0.0)
                        if k == ks[-1] and streams == 4:
                            rates = seen.acceptance_per_position or ()
                            accepted[profile] = [rate or 0.0 for rate in rates]
    return speeds, accepted


async def measure(url: str, client: EngineClient, seconds: float, rounds: int) -> None:
    k_max = (await client.state()).k_max
    ks = list(range(k_max + 1))
    speeds, accepted = await visit_cells(client, url, ks, seconds, rounds)
    print(f"Acceptance per position, 4 streams, k={k_max}:\n")
    positions = [str(i) for i in range(k_max)]
    rows = [[name, *(f"{rate:.2f}" for rate in rates)] for name, rates in accepted.items()]
    print(table(["profile", *positions], rows))
    print("\nThroughput as a ratio to target-only (k=0), median of the rounds:\n")
    rows = [
        [profile, str(streams), *(ratio(speeds, profile, streams, k) for k in ks)]
        for profile in PROFILES
        for streams in STREAMS
    ]
    print(table(["profile", "streams", *(f"k={k}" for k in ks)], rows))
    await client.close()


def ratio(speeds: dict[Cell, list[float]], profile: str, streams: int, k: int) -> str:
    """Median over median; for k=0 its tokens per second."""
    base = middle(speeds[profile, streams, 0])
    here = middle(speeds[profile, streams, k])
    return f"{base:.0f} tok/s" if k == 0 else f"{here / base:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with start_engine() as engine:
        asyncio.run(measure(engine.url, engine.client(), options.seconds, options.rounds))


if __name__ == "__main__":
    main()
