"""Steps of the demo engine at every k, for `benchmarks.policy_simulation --steps`.

    python -m benchmarks.policy_record FILE [--profiles predictable,hard] [--streams 1,4,8,16]
                                       [--seconds 100] [--rounds 6]

One engine; at each profile and number of streams every k is visited once in each round, in
an order of chance, so that drift of the machine hits all of them alike. FILE, JSON lines
packed with gzip, is added to: each line is a step as the plugin records it, with the `text`
and the `visit` that it belongs to.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import httpx
from benchmarks.engines import RunningEngine, put_under_load, start_engine

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.protocol.messages import PREFIX, Change

SETTLE_S = 0.1
"""Between a change of k and the steps that are kept: the change arrives within a step or two."""
_KEPT = ("t", "requests", "tokens", "k", "drafts", "drafted", "accepted_per_position",
         "seconds", "committed", "prefill")  # fmt: skip


async def steps(engine: RunningEngine, since: int) -> list[dict[str, Any]]:
    """The engine's records after step `since`, all of their fields."""
    async with httpx.AsyncClient(base_url=engine.url, trust_env=False, timeout=10) as http:
        answer = await http.get(f"{PREFIX}/steps", params={"since": since})
        return list(answer.raise_for_status().json()["steps"])


async def visit_k(
    engine: RunningEngine, client: EngineClient, k: int, seconds: float
) -> list[dict[str, Any]]:
    """The steps of a visit to `k`, those after it has arrived."""
    await client.put(Change(k=k, who="benchmark"))
    await asyncio.sleep(SETTLE_S)
    since = (await client.state()).step
    await asyncio.sleep(seconds)
    return [record for record in await steps(engine, since) if record["k"] == k]


def line(record: dict[str, Any], *, text: str, visit: int) -> str:
    """A step as a line; durations to a hundredth of a millisecond."""
    kept = {name: record[name] for name in _KEPT}
    kept["t"] = round(kept["t"], 4)
    kept["seconds"] = kept["seconds"] and round(kept["seconds"], 5)
    return json.dumps({"text": text, "visit": visit, "step": record["step"]} | kept)


async def record(engine: RunningEngine, options: argparse.Namespace, random: Random) -> None:
    client = engine.client()
    ks = list(range((await client.state()).k_max + 1))
    for profile in options.profiles.split(","):
        for streams in map(int, options.streams.split(",")):
            each = options.seconds / options.rounds / len(ks)
            count = visit = 0
            async with put_under_load(engine.url, profile, streams, seed=random.randrange(10**6)):
                for _ in range(options.rounds):
                    for k in random.sample(ks, len(ks)):
                        found = await visit_k(engine, client, k, each)
                        visit, count = visit + 1, count + len(found)
                        lines = [line(record, text=profile, visit=visit) for record in found]
                        with gzip.open(options.file, "at", encoding="utf-8") as file:
                            file.writelines(f"{text}\n" for text in lines)
            print(f"{profile}, {streams} streams: {count} steps", flush=True)
    await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--profiles", default="predictable,hard")
    parser.add_argument("--streams", default="1,4,8,16")
    parser.add_argument("--seconds", type=float, default=100.0, help="of each cell")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with start_engine() as engine:
        asyncio.run(record(engine, options, Random(options.seed)))


if __name__ == "__main__":
    main()
