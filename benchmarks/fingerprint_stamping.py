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

from benchmarks.engines import Flown, engine, loaded, table, window
from benchmarks.fingerprint_engines import shallow

from specdeck.engine.protocol.messages import IN_RESPONSES_VARIABLE

STREAMS = 8


@contextmanager
def started(path: Path, *, stamped: bool) -> Iterator[Flown]:
    """An engine that stamps its responses, or one that does not."""
    os.environ[IN_RESPONSES_VARIABLE] = str(int(stamped))
    with engine(path=path) as flown:
        yield flown


async def speed(flown: Flown, seconds: float, seed: int) -> float:
    """Tokens per second under the load."""
    client = flown.client()
    async with loaded(flown.url, "predictable", STREAMS, seed=seed):
        seen = await window(client, seconds)
    await client.close()
    return seen.tokens_per_second or 0.0


async def stamps(flown: Flown) -> bool:
    """Whether the engine says that its responses carry the name."""
    client = flown.client()
    facts = await client.facts()
    await client.close()
    return bool(facts["responses"]["stamped"])


async def compared(bare: Flown, live: Flown, rounds: int, seconds: float) -> None:
    """Print the ratio and its interval."""
    assert (await stamps(bare), await stamps(live)) == (False, True)
    logs, speeds = [], []
    for turn in range(rounds):
        found = {}
        for which in (bare, live) if turn % 2 == 0 else (live, bare):
            found[which.url] = await speed(which, seconds, turn)
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
        path = shallow(Path(folder))
        with started(path, stamped=False) as bare, started(path, stamped=True) as live:
            asyncio.run(compared(bare, live, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
