"""Real engines started again and again with no change: no name of theirs may move.

    python -m benchmarks.fingerprint_engines [RESTARTS]

Starts the shipped pair and wants half a minute for each start. Exits with 1 when a name moved.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.engines import DEMO, RunningEngine, start_engine

from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.query import fetch_finished


def write_shallow_config(folder: Path) -> Path:
    """The demo's config with the target as shallow as it is shipped: it starts sooner."""
    text = DEMO.read_text(encoding="utf-8").replace("./models/", f"{DEMO.parent}/models/")
    head, _, rest = text.partition("deepen:")
    path = folder / "demo.yaml"
    path.write_text(head + rest[rest.index("environment:") :], encoding="utf-8")
    return path


async def fetch(engine: RunningEngine) -> Fingerprint:
    """The whole fingerprint, once the engine has read its weights."""
    client = engine.client()
    try:
        return await fetch_finished(client)
    finally:
        await client.close()


def main(restarts: int) -> int:
    """Prints the names of every start."""
    names = set()
    with tempfile.TemporaryDirectory() as folder:
        path = write_shallow_config(Path(folder))
        for number in range(restarts):
            with start_engine(path=path) as engine:
                found = asyncio.run(fetch(engine))
            names.add((found.build, found.path))
            print(f"start {number + 1}: {found.build} {found.path}", flush=True)
    print(f"names over {restarts} starts with no change: {len(names)}")
    return 0 if len(names) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
