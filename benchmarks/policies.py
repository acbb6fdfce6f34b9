"""Tokens per second of every policy against every fixed k, on the demo engine.

    python -m benchmarks.policies [--minutes M] [--raw FILE] [--report]
                                  [--profiles …] [--streams …] [--k 0,1,2,3,4,6,8]
                                  [--rounds N] [--seconds S] [--period S] [--seed N]

One engine; every arm (a fixed k, `threshold`, `goodput`) is switched on live and visited once
in each round, in an order of chance, each time with the same prompts. `mixed` and `burst` are
visited for their whole period, which `--period` makes shorter than the demo's 60 s: the load
changes as often as that. Before a cell's first round `goodput` flies it for a while, uncounted;
what it learned it keeps between its visits.

Every visit is a line of FILE, and those that FILE has are not made again: `--minutes` ends a
run early, the next one goes on. With all of them made, or with `--report`, the tables are
printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.engines import RunningEngine, start_engine
from benchmarks.policies_table import Visit, read, report
from benchmarks.policy_record import steps

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.demo.load import Load, open_load_client, run
from specdeck.engine.demo.profiles import PROFILES, Phase, Profile
from specdeck.engine.protocol.messages import Change

RAW = Path(__file__).parent / "data" / "policies.jsonl"
LEAD_S = 1.5
"""Load before a visit to a steady profile is counted."""
LEARN_S = 10.0
"""Load under `goodput` before the first round of a cell."""
_POLL_S = 4.0
"""Between two looks at the steps: the engine remembers 4096."""


def change_pace(profile: Profile, period: float) -> Profile:
    """The profile with its phases shortened, or stretched, to last `period` seconds together."""
    whole = sum(phase.seconds for phase in profile.phases)
    phases = (Phase(p.kind, p.seconds * period / whole, p.streams) for p in profile.phases)
    return Profile(profile.name, tuple(phases))


@contextlib.asynccontextmanager
async def drive(url: str, profile: Profile, streams: int, seed: int) -> AsyncIterator[float]:
    """Load from its profile's beginning while the block runs; the monotonic time of it."""
    async with open_load_client(url, headers={}) as http:
        load = Load(profile, streams, seed=seed, model="demo")
        task = asyncio.create_task(run(load, http))
        try:
            yield load.began
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert not load.failed, f"{load.failed} requests failed"


async def put(client: EngineClient, arm: str) -> None:
    """Puts an arm in force: `k=N` or a policy's name."""
    if arm.startswith("k="):
        await client.put(Change(k=int(arm[2:]), who="benchmark"))
    else:
        await client.put(Change(policy=arm, who="benchmark"))  # type: ignore[arg-type]  # one of ARMS


async def wait_until_idle(client: EngineClient) -> int:
    """Waits for the last visit's requests to be gone; the number of the last step."""
    while True:
        state = await client.state()
        if not state.running:
            return state.step
        await asyncio.sleep(0.05)


async def watch(engine: RunningEngine, since: int, seconds: float) -> list[dict[str, Any]]:
    """The engine's steps of the next seconds."""
    found: list[dict[str, Any]] = []
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _POLL_S))
        found += await steps(engine, found[-1]["step"] if found else since)
    return found


def visit(cell: tuple[str, int], turn: int, arm: str, records: list[dict[str, Any]],
          began: float, profile: Profile, lead: float) -> Visit:  # fmt: skip
    """What the steps of a visit come to, from one step's end to another's."""
    counted = [r for r in records if r["t"] >= began + lead]
    first = counted[0]["t"]
    spent: dict[str, float] = {}
    phases: list[list[float]] = [[0.0, 0.0] for _ in profile.phases]
    before = first
    for record in counted[1:]:
        seconds, before = record["t"] - before, record["t"]
        here = profile.phases.index(profile.at(record["t"] - seconds / 2 - began))
        phases[here][0] += record["committed"]
        phases[here][1] += seconds
        spent[str(record["k"])] = spent.get(str(record["k"]), 0.0) + seconds
    return Visit(
        *cell,
        turn,
        arm,
        seconds=round(before - first, 3),
        tokens=sum(record["committed"] for record in counted[1:]),
        steps=len(counted) - 1,
        k_seconds={k: round(seconds, 2) for k, seconds in sorted(spent.items())},
        phases=[(int(tokens), round(seconds, 2)) for tokens, seconds in phases],
    )


class Bench:
    """The arms, cells and rounds that were asked for, on one engine."""

    def __init__(self, engine: RunningEngine, options: argparse.Namespace, ends: float) -> None:
        self._engine, self._options, self._ends = engine, options, ends
        self._client = engine.client()

    async def run(self) -> None:
        """Makes the visits that are missing, until the time is up."""
        for cell in cells(self._options):
            missing = list(find_missing(self._options, cell))
            if missing and not await self._cell(cell, missing):
                break
        await self._client.close()

    async def _cell(self, cell: tuple[str, int], missing: list[tuple[int, str]]) -> bool:
        lead, seconds, profile = self._shape(cell[0])
        if time.monotonic() + LEARN_S + 2 * (lead + seconds) > self._ends:
            return False
        await put(self._client, "goodput")
        learn = Profile("learn", profile.phases)
        async with drive(self._engine.url, learn, cell[1], seed=10**6):
            await asyncio.sleep(max(LEARN_S, 0.0 if lead else seconds))
        for turn, arm in missing:
            if time.monotonic() + lead + seconds + 2 > self._ends:
                return False
            since = await wait_until_idle(self._client)
            await put(self._client, arm)
            seed = self._options.seed + turn
            async with drive(self._engine.url, profile, cell[1], seed) as began:
                records = await watch(self._engine, since, lead + seconds)
            made = visit(cell, turn, arm, records, began, profile, lead)
            with self._options.raw.open("a") as file:
                file.write(json.dumps(asdict(made)) + "\n")
        return True

    def _shape(self, name: str) -> tuple[float, float, Profile]:
        """Uncounted seconds, counted ones, and the profile at its pace."""
        profile = PROFILES[name]
        if len(profile.phases) == 1:
            return LEAD_S, self._options.seconds, profile
        return 0.0, self._options.period, change_pace(profile, self._options.period)


def cells(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Profiles and streams; a profile that says its streams itself is one cell, of 0."""
    for name in options.profiles.split(","):
        wide = PROFILES[name].widest
        yield from ((name, n) for n in ([0] if wide else map(int, options.streams.split(","))))


def find_missing(options: argparse.Namespace, cell: tuple[str, int]) -> Iterator[tuple[int, str]]:
    """The rounds and arms of a cell that the raw file lacks."""
    had = {(v.profile, v.streams, v.round, v.arm) for v in read(options.raw)}
    arms = [*(f"k={k}" for k in options.k.split(",")), "threshold", "goodput"]
    steady = len(PROFILES[cell[0]].phases) == 1
    for turn in range(options.rounds if steady else options.period_rounds):
        order = Random(f"{options.seed} {cell} {turn}").sample(arms, len(arms))
        yield from ((turn, arm) for arm in order if (*cell, turn, arm) not in had)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--report", action="store_true", help="print the tables of what there is")
    parser.add_argument("--profiles", default="predictable,hard,mixed,burst")
    parser.add_argument("--streams", default="1,4,8,16")
    parser.add_argument("--k", default="0,1,2,3,4,6,8")
    parser.add_argument("--rounds", type=int, default=3, help="of the steady profiles")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a visit to a steady profile")
    parser.add_argument("--period-rounds", type=int, default=1, help="of the changing profiles")
    parser.add_argument("--period", type=float, default=24.0, help="seconds of their period")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.raw.parent.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * options.minutes
    if not options.report and any(list(find_missing(options, cell)) for cell in cells(options)):
        with start_engine() as engine:
            asyncio.run(Bench(engine, options, ends).run())
    missing = sum(len(list(find_missing(options, cell))) for cell in cells(options))
    print(report(read(options.raw), missing=missing))


if __name__ == "__main__":
    main()
