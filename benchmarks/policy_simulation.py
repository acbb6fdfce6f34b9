"""Policies and breaker driven by steps of an engine, a million of them in seconds.

    python -m benchmarks.policy_simulation [--steps FILE]... [--synthetic] [--gpu | --recorded]
                                           [--seeds N] [--seconds S] [--count N]

FILE is what `benchmarks.policy_record` writes: steps of a real engine with every k from 0 to
k_max visited at each batch size that is to count; by default those that lie in
`benchmarks/data`. Stretches of them are played: their durations and acceptance are the
engine's, the order of the stretches is chance. With `--synthetic` the steps are made by a
cost and acceptance model, with `--gpu` by the constants of `benchmarks.policy_gpu`: those
figures say how the policies behave and nothing about any engine.

What goodput loses is told against a paired oracle, see `benchmarks.policy_regret`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.policy_gpu import GpuEngine
from benchmarks.policy_gpu import loads as gpu_loads
from benchmarks.policy_regret import HEAD, Load, Oracle, World, drive, measure, runner
from benchmarks.policy_regret import Cell as Row
from benchmarks.policy_synthetic import make_pools
from tests.support.recorded_steps import Cell, Engine, Pools, rate, read_pools

from specdeck.engine.policy.parameters import BreakerParameters
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step

RECORDED = sorted((Path(__file__).parent / "data").glob("steps*.jsonl.gz"))
STRETCH = 8
"""Steps in a row of one text, where two are mixed."""


class Segment(NamedTuple):
    """A stretch of load."""

    text: str
    requests: int
    seconds: float


def records(paths: Iterable[Path]) -> dict[str, list[dict[str, Any]]]:
    """The steps of recordings, by their text."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                found.setdefault(record["text"], []).append(record)
    return found


class RecordedWorld:
    """Plays recorded steps; equal seeds begin every stretch at the same place."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.k_max = depth_of(pools) - 1
        self._engine = Engine(pools, Random(0))

    @property
    def t(self) -> float:
        return self._engine.t

    def begin(self, segment: Segment, seed: str) -> None:
        """Goes on with `segment`."""
        self._segment = segment
        self._engine.reseed(Random(seed))

    def requests(self) -> int:
        """How many requests the next step has."""
        return self._segment.requests

    def step(self, requests: int, k: int) -> Step:
        """The step at `k`."""
        return self._engine.step(self._segment.text, requests, k)


class RecordedOracle(Oracle):
    """The best k of a segment by the whole recording."""

    def __init__(self, pools: Pools) -> None:
        super().__init__(lambda: RecordedWorld(pools))
        self._pools = pools

    def best(self, segment: Segment) -> int:
        """The k of most tokens per second on average."""
        rates = [
            rate(self._pools, segment.text, segment.requests, k)
            for k in range(depth_of(self._pools))
        ]
        return rates.index(max(rates))


def cells(pools: Pools, seconds: float = 120) -> Iterator[Load]:
    """Loads of one text and batch size, and loads that change."""
    texts = list(dict.fromkeys(text for text, _ in pools))
    sizes = sizes_of(pools)
    for text in texts:
        for requests in sizes:
            yield Load(f"{text} {requests}", [Segment(text, requests, seconds)])
    for every in (30, 10, 3, 1):
        for requests in sizes:
            both = [Segment(text, requests, every) for text in (texts[0], texts[-1])]
            name = f"mixed {requests}, each {every} s"
            yield Load(name, both * max(1, int(seconds / every / 2)), shifting=every == 1)
    yield Load("burst", [Segment(texts[0], requests, 15) for requests in sizes] * 3)


def recorded_row(pools: Pools, seeds: int, breaker: BreakerParameters | None, load: Load) -> Row:
    """A load on recorded steps."""
    oracle = RecordedOracle(pools)
    return measure(lambda: RecordedWorld(pools), oracle, load, range(1, seeds + 1), breaker=breaker)


def gpu_row(seeds: int, breaker: BreakerParameters | None, load: Load) -> Row:
    """A load on the synthetic GPU."""
    return measure(GpuEngine, Oracle(GpuEngine), load, range(1, seeds + 1), breaker=breaker)


def table(row: Callable[[Load], Row], loads: Iterable[Load], pool: ProcessPoolExecutor) -> None:
    """What goodput loses in every cell."""
    print(HEAD)
    rows = []
    for found in pool.map(row, loads):
        print(found, flush=True)
        rows.append(found)
    met = sum(found.met for found in rows)
    print(f"{met} of {len(rows)} cells meet every target\n", flush=True)


def collapse(pools: Pools, seed: int) -> None:
    """Every draft is rejected for a minute."""
    first = next(text for text, _ in pools)
    pools = {key: cell for key, cell in pools.items() if key[0] == first}
    for (_, requests), cell in list(pools.items()):
        pools["rejected", requests] = Cell(cell.seconds, cell.noise, [(0,) * len(cell.seconds)])
    k_max = depth_of(pools) - 1
    parameters = BreakerParameters()
    print("a collapse of acceptance at 60 s that ends at 120 s: the breaker, windows of "
          f"{parameters.window_s:g} s")  # fmt: skip
    for requests in sorted({requests for _, requests in pools}):
        for kind in (f"k={k_max}", "goodput"):
            events: list[tuple[float, str]] = [(0.0, "closed")]

            def watch(seen: Step, auto: PolicyRunner, seen_before: list[Any] = events) -> None:
                if auto.breaker.state != seen_before[-1][1]:
                    seen_before.append((seen.t, auto.breaker.state))

            load = [Segment(text, requests, 60) for text in (first, "rejected", first)]
            guarded = runner(kind, k_max, breaker=parameters)
            drive(RecordedWorld(pools), guarded, load, seed, watch)
            opened = next((t - 60 for t, state in events if t > 60 and state == "open"), None)
            closed = next((t - 120 for t, state in events if t > 120 and state == "closed"), None)
            print(
                f"  {kind:8s} {requests:3d} streams   opens after "
                f"{'never' if opened is None else f'{opened / parameters.window_s:.1f} windows'},"
                f" closes {'never' if closed is None else f'{closed:.1f} s'} after the end"
            )
    print()


def edge(pools: Pools, seed: int) -> None:
    """An hour at gains around the breaker's thresholds, with texts mixed to that gain."""
    k_max = depth_of(pools) - 1
    parameters = BreakerParameters()
    print("an hour at the edge: how often the breaker opened, fixed k in force")
    for requests in sizes_of(pools)[::2]:
        for gain in (-parameters.loss, 0.0, parameters.gain):
            mixed = at_gain(pools, requests, k_max, gain, Random(seed))
            if mixed is None:
                continue
            auto = runner(f"k={k_max}", k_max, breaker=parameters)
            ran = drive(RecordedWorld(mixed), auto, [Segment("edge", requests, 3600)], seed)
            opened = auto.breaker.view().opened
            print(f"  {requests:3d} streams, {gain:+.0%}: {opened} in {ran.steps:,} steps")
    print()


def at_gain(pools: Pools, requests: int, k: int, gain: float, random: Random) -> Pools | None:
    """One text, of stretches of the first and rejected ones, at which `k` gains `gain` over 0."""
    good = pools[next(text for text, _ in pools), requests]
    cost = good.seconds[k] / good.seconds[0]
    most = good.rate(requests, k) * good.seconds[k] / requests
    share = ((1 + gain) * cost - 1) / (most - 1)
    if not 0.001 < share < 0.999:
        return None
    tape, drafts = good.drafts[-1], []
    for _ in range(20_000 // STRETCH):
        start, kept = random.randrange(len(tape)), random.random() < share
        for i in range(STRETCH):
            accepted = tape[(start + i) % len(tape)][0]
            drafts.append(accepted if kept else (0,) * len(accepted))
    return {("edge", requests): Cell(good.seconds, good.noise, drafts)}


def easiest_first(pools: Pools) -> Pools:
    """The same, texts of which more is accepted before others."""

    def acceptance(text: str) -> float:
        cells = [cell for (name, _), cell in pools.items() if name == text]
        return fmean(total for _, total in cells[0].drafts[-1])

    texts = sorted({text for text, _ in pools}, key=acceptance, reverse=True)
    return {key: pools[key] for text in texts for key in sorted(pools) if key[0] == text}


def sizes_of(pools: Pools) -> list[int]:
    """The batch sizes that every text was recorded at."""
    texts = {text for text, _ in pools}
    return [n for n in sorted({n for _, n in pools}) if all((text, n) in pools for text in texts)]


def depth_of(pools: Pools) -> int:
    """How many k's there are, 0 among them."""
    return len(next(iter(pools.values())).seconds)


def million(make: Callable[[], World], loads: Iterable[Load], seed: int, count: int) -> None:
    """The cost of goodput and breaker together, simulation included."""
    load = [segment for load in loads for segment in load.segments] * 1000
    least = float("inf")
    for _ in range(5):
        world = make()
        auto = runner("goodput", world.k_max, breaker=BreakerParameters())
        ran = drive(world, auto, load, seed, most=count)
        least = min(least, ran.cpu)
    print(
        f"{ran.steps:,} steps of goodput and breaker in {least:.1f} s of CPU: "
        f"{least / ran.steps * 1e6:.1f} µs a step, the least of five runs, drawing it included"
    )


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", action="append", type=Path, metavar="FILE")
    parser.add_argument("--synthetic", action="store_true")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--gpu", action="store_true", help="only the synthetic GPU")
    only.add_argument("--recorded", action="store_true", help="only the recorded steps")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=120, help="of a steady cell")
    parser.add_argument("--count", type=int, default=1_000_000)
    arguments = parser.parse_args()
    breaker = BreakerParameters()
    seeds, seconds = arguments.seeds, arguments.seconds
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        if not (arguments.synthetic or arguments.recorded):
            print("SYNTHETIC GPU: no engine was measured; goodput with the breaker")
            table(partial(gpu_row, seeds, breaker), gpu_loads(seconds), pool)
        if arguments.gpu:
            return
        if arguments.synthetic:
            pools = make_pools(Random(1), (1, 4, 8, 16))
            print("SYNTHETIC steps: no engine was measured")
        else:
            pools = easiest_first(read_pools(records(arguments.steps or RECORDED)))
            count = sum(len(cell.noise) for cell in pools.values())
            print(f"{count:,} recorded steps of a real engine")
        if not pools:
            parser.exit(1, "no batch size was recorded at every k\n")
        loads = list(cells(pools, seconds))
        print("goodput with the breaker")
        table(partial(recorded_row, pools, seeds, breaker), loads, pool)
        print("goodput alone")
        table(partial(recorded_row, pools, seeds, None), loads, pool)
    collapse(pools, 1)
    edge(pools, 1)
    if arguments.count:
        million(lambda: RecordedWorld(pools), loads, 1, arguments.count)


if __name__ == "__main__":
    main()
