"""Fingerprints of real engines: still over restarts, idle and busy, moved by another dtype.

    python -m benchmarks.fingerprint_engines [RESTARTS] [REPEATS]

Starts the shipped pair again and again and wants half a minute for each start. Exits
with 1 when a name moved with no change, or none with one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.engines import DEMO, engine, loaded

from specdeck.engine.fingerprint.behaviour import Behaviour, moved
from specdeck.engine.fingerprint.look import finished
from specdeck.engine.fingerprint.probe import probed
from specdeck.engine.fingerprint.seen import Seen


def config(folder: Path) -> Path:
    """The demo's, as shallow as it is shipped: it starts sooner."""
    text = DEMO.read_text(encoding="utf-8").replace("./models/", f"{DEMO.parent}/models/")
    head, _, rest = text.partition("deepen:")
    path = folder / "demo.yaml"
    path.write_text(head + rest[rest.index("environment:") :], encoding="utf-8")
    return path


async def seen(flown: Any) -> Seen:
    client = flown.client()
    try:
        return await finished(client)
    finally:
        await client.close()


async def behaviour(flown: Any, runs: int) -> Behaviour:
    client = flown.client()
    try:
        return await probed(client, runs=runs)
    finally:
        await client.close()


async def busy(flown: Any, runs: int) -> Behaviour:
    async with loaded(flown.url, "predictable", 8):
        return await behaviour(flown, runs)


def said(name: str, found: Behaviour) -> None:
    print(
        f"{name}: {found.name}, {found.agreement:.1%} of answers agree over {found.runs} runs,"
        f" noise {found.noise:.2g} nats, step {found.step:g}",
        flush=True,
    )


def main(restarts: int, repeats: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = config(Path(folder))
        names = set()
        for number in range(restarts):
            with engine(path=path) as flown:
                found = asyncio.run(seen(flown))
                names.add((found.build, found.path))
                if number == restarts - 1:
                    idle = asyncio.run(behaviour(flown, repeats))
                    said("idle", idle)
                    loaded_ = asyncio.run(busy(flown, repeats))
                    said("under load of 8 streams", loaded_)
            print(f"start {number + 1}: {found.build} {found.path}", flush=True)
        with engine(path=path, dtype="float32") as flown:
            other = asyncio.run(behaviour(flown, 2))
    said("float32", other)
    apart, between = moved(idle, other), moved(idle, loaded_)
    print(f"names over {restarts} starts: {len(names)}")
    print(f"probes that float32 moves: {len(apart)}; that load moves: {len(between)}")
    return 0 if len(names) == 1 and apart and not between else 1


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(numbers + [10, 20][len(numbers) :])))
