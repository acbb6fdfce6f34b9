"""The behaviour probe on one real engine: idle, under load, and in another dtype.

    python -m benchmarks.fingerprint_behaviour [REPEATS]

Exits with 1 when load moved a probe, or float32 moved none.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.engines import RunningEngine, put_under_load, start_engine, table
from benchmarks.fingerprint_engines import write_shallow_config

from specdeck.engine.fingerprint.behaviour import Behaviour, moved_probes
from specdeck.engine.fingerprint.query import probe_behaviour

HEAD = ["engine", "name", "runs", "answers that agree", "noise, nats", "step, nats", "seconds"]


async def probe(engine: RunningEngine, runs: int) -> Behaviour:
    """What the engine answers."""
    client = engine.client()
    try:
        return await probe_behaviour(client, runs=runs)
    finally:
        await client.close()


async def probe_under_load(engine: RunningEngine, runs: int) -> Behaviour:
    """The same while eight streams are served."""
    async with put_under_load(engine.url, "predictable", 8):
        return await probe(engine, runs)


def row(name: str, found: Behaviour, began: float) -> list[str]:
    """One measurement."""
    figures = (f"{found.agreement:.2%}", f"{found.noise:.2g}", f"{found.step:g}")
    return [name, found.name, str(found.runs), *figures, f"{time.monotonic() - began:.0f}"]


def main(repeats: int) -> int:
    """Prints how steady each was, and what moved between them."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_shallow_config(Path(folder))
        with start_engine(path=path) as engine:
            began = time.monotonic()
            idle = asyncio.run(probe(engine, repeats))
            rows.append(row("idle", idle, began))
            began = time.monotonic()
            under_load = asyncio.run(probe_under_load(engine, repeats))
            rows.append(row("8 streams", under_load, began))
        with start_engine(path=path, dtype="float32") as engine:
            began = time.monotonic()
            other = asyncio.run(probe(engine, 3))
            rows.append(row("float32", other, began))
    apart, between = moved_probes(idle, other), moved_probes(idle, under_load)
    print(table(HEAD, rows))
    print(f"\nProbes that load moves: {len(between)}; that float32 moves: {len(apart)}.")
    return 0 if apart and not between else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
