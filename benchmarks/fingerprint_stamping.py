"""What the live name in every response costs: throughput with it over without it.

    python -m benchmarks.fingerprint_stamping [--rounds 12] [--seconds 3]

Two engines of one config side by side, both with the plugin, one of which leaves vLLM's own
value in its responses. Each round loads one, then the other, in an order that alternates.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.engines import RunningEngine, put_under_load, start_engine, table, window
from benchmarks.fingerprint_engines import write_shallow_config

from specdeck.engine.protocol.messages import IN_RESPONSES_VARIABLE

STREAMS = 8


@contextmanager
def start(path: Path, *, stamped: bool) -> Iterator[RunningEngine]:
    """An engine that stamps its responses, or one that does not."""
    os.environ[IN_RESPONSES_VARIABLE] = str(int(stamped))
    with start_engine(path=path) as engine:
        yield engine


async def measure_speed(engine: RunningEngine, seconds: float, seed: int) -> float:
    """Tokens per second under the load."""
    client = engine.client()
    async with put_under_load(engine.url, "predictable", STREAMS, seed=seed):
        seen = await window(client, seconds)
    await client.close()
    return seen.tokens_per_second or 0.0


async def is_stamping(engine: RunningEngine) -> bool:
    """Whether the engine says that its responses carry the name."""
    client = engine.client()
    facts = await client.facts()
    await client.close()
    return bool(facts["responses"]["stamped"])


async def compare(bare: RunningEngine, live: RunningEngine, rounds: int, seconds: float) -> None:
    """Print the ratio and its interval."""
    assert (await is_stamping(bare), await is_stamping(live)) == (False, True)
    logs, speeds = [], []
    for turn in range(rounds):
        found = {}
        for which in (bare, live) if turn % 2 == 0 else (live, bare):
            found[which.url] = await measure_speed(which, seconds, turn)
        logs.append(math.log(found[live.url] / found[bare.url]))
        speeds.append(found[bare.url])
    middle, spread = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(rounds)
    low, high = (math.exp(middle + side * 2.2 * spread) for side in (-1, 1))
    print(f"{rounds} rounds, {STREAMS} streams, {statistics.median(speeds):.0f} tok/s without.\n")
    ratios = [f"{math.exp(x):.3f}" for x in (middle, min(logs), max(logs))]
    interval = f"{low:.3f} to {high:.3f}"
    head = ["with / without: mean", "95 % interval", "lowest round", "highest round"]
    print(table(head, [[ratios[0], interval, *ratios[1:]]]))


def main() -> None:
    """Two engines, compared."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write_shallow_config(Path(folder))
        with start(path, stamped=False) as bare, start(path, stamped=True) as live:
            asyncio.run(compare(bare, live, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
