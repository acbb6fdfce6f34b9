"""What being watched costs an engine: throughput with plugin and console over without.

    python -m benchmarks.overhead [--rounds 12] [--seconds 4]

Two engines of one config run side by side, one of them without the plugin. Each round
loads one, then the other, in an order that alternates; while the engine with the plugin
is loaded, it is followed once a second, as a console follows it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator

from benchmarks.engines import Flown, engine, loaded, middle, table, window

from specdeck.engine.metrics.scrape import readings

STREAMS = 4


@contextlib.asynccontextmanager
async def followed(flown: Flown, follow: bool) -> AsyncIterator[None]:
    """A console's readings, once a second."""
    if not follow:
        yield
        return
    client = flown.client()

    async def look() -> None:
        async for _ in readings(client, every=1.0):
            pass

    task = asyncio.create_task(look())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()


async def speed(flown: Flown, *, watched: bool, seconds: float, seed: int) -> float:
    """Tokens per second under the load."""
    client = flown.client()
    async with loaded(flown.url, "predictable", STREAMS, seed=seed), followed(flown, watched):
        seen = await window(client, seconds)
    await client.close()
    return seen.tokens_per_second or 0.0


async def compared(plain: Flown, flown: Flown, rounds: int, seconds: float) -> None:
    """Print the ratio of each round and their median."""
    ratios, speeds = [], []
    for turn in range(rounds):
        order = [(plain, False), (flown, True)]
        found = {}
        for which, watched in order if turn % 2 == 0 else reversed(order):
            found[watched] = await speed(which, watched=watched, seconds=seconds, seed=turn)
        ratios.append(found[True] / found[False])
        speeds.append(found[False])
    rows = [[f"{min(ratios):.3f}", f"{middle(ratios):.3f}", f"{max(ratios):.3f}"]]
    print(f"{rounds} rounds, {STREAMS} streams, {middle(speeds):.0f} tok/s without.\n")
    print(table(["with / without: lowest", "median", "highest"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    with engine(plugin=False) as plain, engine() as flown:
        asyncio.run(compared(plain, flown, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
