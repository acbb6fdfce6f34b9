"""This checkout beside another one of the project, in one run: what a change made better or worse.

    python -m benchmarks.side_by_side CHECKOUT [--only simulation,latency,throughput]
                                      [--rounds 12] [--seconds 4] [--changes 400]

CHECKOUT is set up (`scripts/setup.sh`) at the commit to compare with. Each measurement goes
there and back, this-other-other-this, so that a drift of the machine hits both alike; what is
reported is the ratio of neighbours. Engines and followers run each checkout's own code; load
and changes of k come from one client, this one's.

- simulation: CPU of a million steps of `benchmarks.policy_simulation`, and whether all else
  that it prints is the same.
- hooks: what the plugin adds to a step of a stand-in for the scheduler.
- latency: one change of k under load, acknowledged; engines of both checkouts side by side.
- throughput: with plugin and `specdeck watch` once a second, over an engine without the plugin.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, stdev

import psutil
from benchmarks.engines import RunningEngine, put_under_load, table, window

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.errors import Stalled
from specdeck.engine.protocol.messages import Change

HERE = Path(__file__).parents[1]
STREAMS = 4
PAUSE_S = 0.05
BURST = 10
"""Changes in a row to one engine under load before the other's turn."""
SIMULATION_ROUNDS = 4
PARTS = ("simulation", "hooks", "latency", "throughput")
_HOLD = """
import json, sys
from benchmarks import engines
start = getattr(engines, "start_engine", None) or engines.engine
with start(plugin=sys.argv[1] == "plugin") as engine:
    print(json.dumps([engine.url, str(engine.token_file)]), flush=True)
    sys.stdin.read()
"""
"""Runs in the other checkout as well, where the function may have its older name."""
_HOOKED = re.compile(r"^\| (\w+) \| (\d+) \| ([\d.]+) \|", re.MULTILINE)
_SIMULATED = re.compile(r"steps of goodput and breaker in \S+ s of CPU: (\S+) µs a step")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two checkouts."""

    name: str
    root: Path

    def command(self, *arguments: str) -> list[str]:
        """Its own interpreter, with its own code."""
        return [str(self.root / ".venv/bin/python"), *arguments]


@dataclass(frozen=True, slots=True)
class HeldEngine(RunningEngine):
    """An engine in the hands of a process of its checkout."""

    holder: psutil.Process

    def cpu_s(self) -> float:
        """CPU that all its processes have used by now, seconds."""
        times = [process.cpu_times() for process in self.holder.children(recursive=True)]
        return sum(time.user + time.system for time in times)


@contextlib.contextmanager
def hold_engine(side: Side, *, plugin: bool = True) -> Iterator[HeldEngine]:
    """The demo's engine, started by a checkout's own code; ended with the block."""
    holder = subprocess.Popen(
        side.command("-c", _HOLD, "plugin" if plugin else "none"),
        cwd=side.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        line = holder.stdout.readline()
        if not line:
            sys.exit(f"the engine of {side.root} did not start")
        url, token_file = json.loads(line)
        yield HeldEngine(url, Path(token_file), psutil.Process(holder.pid))
    finally:
        holder.stdin.close()
        holder.wait()


@contextlib.asynccontextmanager
async def follow(side: Side, url: str) -> AsyncIterator[None]:
    """A checkout's own readings of an engine, once a second, from its first one on."""
    process = await asyncio.create_subprocess_exec(
        *side.command("-m", "specdeck", "watch", url, "--json", "--interval", "1"),
        cwd=side.root, stdout=subprocess.PIPE, limit=2**20,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        if not await process.stdout.readline():
            sys.exit(f"`specdeck watch` of {side.root} ended at once")
        yield
    finally:
        process.terminate()
        await process.communicate()


def there_and_back(sides: tuple[Side, Side], turn: int) -> Iterator[Side]:
    """Both sides, in the other order at every second turn."""
    return iter(sides) if turn % 2 == 0 else reversed(sides)


def spread(ratios: list[float]) -> list[str]:
    """Geometric mean, its 95 % interval, lowest and highest of ratios."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / len(logs)
    half = 1.96 * stdev(logs) / math.sqrt(len(logs))
    interval = f"{math.exp(mean - half):.3f} to {math.exp(mean + half):.3f}"
    return [f"{math.exp(mean):.3f}", interval, f"{min(ratios):.3f}", f"{max(ratios):.3f}"]


def run_there(side: Side, name: str, *arguments: str) -> str:
    """What a benchmark of a checkout prints."""
    return subprocess.run(
        side.command("-m", f"benchmarks.{name}", *arguments),
        cwd=side.root, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip


def compare_hooks(sides: tuple[Side, Side]) -> None:
    """Print what the plugin's hooks add to a step."""
    costs: dict[str, dict[str, list[float]]] = {side.name: {} for side in sides}
    for turn in range(SIMULATION_ROUNDS):
        for side in there_and_back(sides, turn):
            output = run_there(side, "plugin_step_cost", "--steps", "5000")
            for policy, requests, cost in _HOOKED.findall(output):
                costs[side.name].setdefault(f"{policy}, {requests}", []).append(float(cost))
    this, other = (costs[side.name] for side in sides)
    rows = [
        [name, f"{median(this[name]):.1f}", f"{median(other[name]):.1f}",
         *spread([a / b for a, b in zip(this[name], other[name], strict=True)])]
        for name in this
    ]  # fmt: skip
    print("What the plugin's hooks add to a step, medians:\n")
    print(table(["policy, requests", "this, µs", "other, µs", *RATIO], rows), "\n")


SPREAD = ["mean", "95 % interval", "lowest", "highest"]
RATIO = [f"this / other: {SPREAD[0]}", *SPREAD[1:]]


def compare_simulation(sides: tuple[Side, Side]) -> None:
    """Print what a million simulated steps cost, and whether the decisions are the same."""
    costs: dict[str, list[float]] = {side.name: [] for side in sides}
    rest: dict[str, set[str]] = {side.name: set() for side in sides}
    for turn in range(SIMULATION_ROUNDS):
        for side in there_and_back(sides, turn):
            output = run_there(side, "policy_simulation")
            found = _SIMULATED.search(output)
            assert found is not None, output
            costs[side.name].append(float(found[1]))
            rest[side.name].add(_SIMULATED.sub("", output))
    this, other = sides
    ratios = [a / b for a, b in zip(costs[this.name], costs[other.name], strict=True)]
    rows = [[f"{median(costs[side.name]):.1f}" for side in sides] + spread(ratios)]
    print("Simulated policies, CPU of a step:\n")
    print(table(["this, µs", "other, µs", *RATIO], rows))
    same = rest[this.name] == rest[other.name] and len(rest[this.name]) == 1
    print(f"\nAll that is decided: {'the same to the last figure' if same else 'DIFFERENT'}.\n")


async def measure_latency(
    sides: tuple[Side, Side], engines: list[HeldEngine], changes: int
) -> None:
    """Print how long changes of k take: change by change on idle engines, then under load."""
    named = {side.name: engine for side, engine in zip(sides, engines, strict=True)}
    clients = {name: engine.client() for name, engine in named.items()}
    k_max = min([(await client.state()).k_max for client in clients.values()])
    idle: dict[str, list[float]] = {side.name: [] for side in sides}
    rng = random.Random(3)
    for turn in range(changes):
        k = rng.randint(0, k_max)
        for side in there_and_back(sides, turn):
            idle[side.name].append(await time_change(clients[side.name], k))
    under_load: dict[str, list[float]] = {side.name: [] for side in sides}
    in_steps: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(changes // BURST):
        for side in there_and_back(sides, turn):
            client, rng, burst = clients[side.name], random.Random(turn), []
            async with put_under_load(named[side.name].url, "predictable", STREAMS, seed=turn):
                since = (await client.state()).step
                for _ in range(BURST):
                    burst.append(await time_change(client, rng.randint(0, k_max)))
                    await asyncio.sleep(PAUSE_S)
                steps = await client.steps(since)
            pairs = (pair for pair in pairwise(steps) if pair[1].step == pair[0].step + 1)
            under_load[side.name] += burst
            step_ms = median((after.t - before.t) * 1e3 for before, after in pairs)
            in_steps[side.name].append(median(burst) / step_ms)
    for client in clients.values():
        await client.close()
    this, other = (side.name for side in sides)
    rows = []
    for name, took in (("idle", idle), (f"{STREAMS} streams", under_load)):
        rows += [
            [name, side, f"{median(took[side]):.1f}", f"{percentile_95(took[side]):.1f}"]
            for side in (this, other)
        ]
    print(f"A change of k, acknowledged; {changes} changes each, in turn:\n")
    print(table(["engine", "checkout", "p50, ms", "p95, ms"], rows))
    ratios = {
        "idle, ms": [a / b for a, b in zip(idle[this], idle[other], strict=True)],
        f"{STREAMS} streams, in steps of the engine": [
            a / b for a, b in zip(in_steps[this], in_steps[other], strict=True)
        ],
    }
    rows = [[name, *spread(found)] for name, found in ratios.items()]
    here, there = (f"{median(in_steps[side]):.2f}" for side in (this, other))
    print(f"\nUnder load {here} steps of the engine here and {there} there, medians of "
          f"{changes // BURST} bursts.\n")  # fmt: skip
    print(table(["this / other", *SPREAD], rows), "\n")


async def time_change(client: EngineClient, k: int) -> float:
    """Milliseconds until a change of k is acknowledged; one that a stalled engine refuses is made
    again."""
    while True:
        began = time.perf_counter()
        try:
            await client.put(Change(k=k, who="benchmark"))
        except Stalled:
            continue
        return (time.perf_counter() - began) * 1e3


def percentile_95(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


async def measure_throughput(
    sides: tuple[Side, Side],
    engines: list[HeldEngine],
    plain: HeldEngine,
    rounds: int,
    seconds: float,
) -> None:
    """Print tokens per second, and CPU per token, of both and of an engine without the plugin."""
    arms = {
        "this": (sides[0], engines[0]),
        "without": (None, plain),
        "other": (sides[1], engines[1]),
    }
    speeds: dict[str, list[float]] = {name: [] for name in arms}
    costs: dict[str, list[float]] = {name: [] for name in arms}
    for engine in engines:
        client = engine.client()
        await client.put(Change(k=(await client.state()).k_max, who="benchmark"))
        await client.close()
    for turn in range(rounds):
        for name in arms if turn % 2 == 0 else reversed(arms):
            side, engine = arms[name]
            async with contextlib.AsyncExitStack() as stack:
                if side is not None:
                    await stack.enter_async_context(follow(side, engine.url))
                load = put_under_load(engine.url, "predictable", STREAMS, seed=turn)
                await stack.enter_async_context(load)
                client = engine.client()
                before = engine.cpu_s()
                seen = await window(client, seconds)
                used = engine.cpu_s() - before
                await client.close()
            assert seen.tokens_per_second, f"{engine.url} made nothing"
            speeds[name].append(seen.tokens_per_second)
            costs[name].append(used / (seen.tokens_per_second * seen.seconds))
    print(f"Throughput: {rounds} rounds of {seconds:g} s, {STREAMS} streams; without plugin and "
          f"follower {median(speeds['without']):.0f} tok/s, "
          f"{median(costs['without']) * 1e3:.2f} ms of CPU a token:\n")  # fmt: skip
    rows = []
    for what, found in (("tokens per second", speeds), ("CPU of the engine a token", costs)):
        for one, other in (("this", "without"), ("other", "without"), ("this", "other")):
            ratios = [x / y for x, y in zip(found[one], found[other], strict=True)]
            rows.append([f"{what}, {one} / {other}", *spread(ratios)])
    print(table(["ratio", *SPREAD], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--changes", type=int, default=400)
    options = parser.parse_args()
    parts = options.only.split(",")
    sides = (Side("this", HERE), Side("other", options.checkout.resolve()))
    if "simulation" in parts:
        compare_simulation(sides)
    if "hooks" in parts:
        compare_hooks(sides)
    if "latency" not in parts and "throughput" not in parts:
        return
    with hold_engine(sides[1]) as second, hold_engine(sides[0]) as first:
        if "latency" in parts:
            asyncio.run(measure_latency(sides, [first, second], options.changes))
        if "throughput" in parts:
            with hold_engine(sides[0], plugin=False) as plain:
                asyncio.run(
                    measure_throughput(
                        sides, [first, second], plain, options.rounds, options.seconds
                    )
                )


if __name__ == "__main__":
    main()
