"""Policies and breaker driven by steps of an engine, a million of them in seconds.

    python -m benchmarks.policy_simulation [--steps FILE]... [--synthetic] [--seed N] [--count N]

FILE is what `benchmarks.policy_record` writes: steps of a real engine with every k from 0 to
k_max visited at each batch size that is to count; by default those that lie in
`benchmarks/data`. Stretches of them are played: their durations and acceptance are the
engine's, the order of the stretches is chance. With `--synthetic` the steps are made by a
cost and acceptance model, whose figures say how the policies behave and nothing about any
engine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.policy_synthetic import make_pools
from tests.support.recorded_steps import Cell, Engine, Pools, rate, read_pools

from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.parameters import (
    BreakerParameters,
    GoodputParameters,
    ThresholdParameters,
)
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket
from specdeck.engine.policy.threshold import Threshold

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


def runner(kind: str, k_max: int, *, breaker: BreakerParameters | None = None) -> PolicyRunner:
    """A policy by name: `goodput`, `threshold`, or `k=N`."""
    known = Estimates(k_max)
    guard = Breaker(breaker, known) if breaker else None
    if kind == "goodput":
        policy: Goodput | Threshold | Fixed = Goodput(GoodputParameters(), known, k=k_max)
    elif kind == "threshold":
        policy = Threshold(ThresholdParameters(), k_max=k_max)
    else:
        policy = Fixed(int(kind.removeprefix("k=")), k_max=k_max)
    return PolicyRunner(policy, known, breaker=guard)


class Run(NamedTuple):
    """What a run came to."""

    tokens: int
    seconds: float
    steps: int
    oracle: float
    """The tokens that the best k for each segment would have given in the same time."""
    cpu: float

    @property
    def regret(self) -> float:
        return 1 - self.tokens / self.oracle


def run(
    pools: Pools,
    auto: PolicyRunner,
    load: Iterable[Segment],
    random: Random,
    watch: Callable[[Step, PolicyRunner], None] | None = None,
    most: int | None = None,
) -> Run:
    """Drives `auto` through `load`, at most `most` steps."""
    engine, depth = Engine(pools, random), depth_of(pools)
    tokens = steps = 0
    oracle, start = 0.0, time.process_time()
    for text, requests, seconds in load:
        if steps == most:
            break
        began, end, here = engine.t, engine.t + seconds, bucket(requests)
        while engine.t < end and (most is None or steps < most):
            seen = engine.step(text, requests, auto.decision.table[here])
            auto.choose(seen)
            tokens += seen.committed
            steps += 1
            if watch:
                watch(seen, auto)
        oracle += (engine.t - began) * max(rate(pools, text, requests, k) for k in range(depth))
    return Run(tokens, engine.t, steps, oracle, time.process_time() - start)


def cells(pools: Pools, seed: int) -> Iterator[tuple[str, list[Segment]]]:
    """Loads of one text and batch size, and loads that change."""
    texts = list(dict.fromkeys(text for text, _ in pools))
    sizes = sizes_of(pools)
    for text in texts:
        for requests in sizes:
            yield f"{text} {requests}", [Segment(text, requests, 120)]
    for requests in sizes:
        both = [Segment(texts[0], requests, 30), Segment(texts[-1], requests, 30)]
        yield f"mixed {requests}", both * 3
    yield "burst", [Segment(texts[0], requests, 15) for requests in sizes] * 3


def table(pools: Pools, seed: int) -> None:
    depth = depth_of(pools)
    kinds = [*(f"k={k}" for k in range(depth)), "threshold", "goodput"]
    print("committed tokens per second, over those of the best fixed k for the whole load")
    head = "".join(f"{kind:>10s}" for kind in kinds)
    print(f"{'load':16s}{head}    regret  with breaker")
    for name, load in cells(pools, seed):
        runs = {kind: run(pools, runner(kind, depth - 1), load, Random(seed)) for kind in kinds}
        speeds = {kind: ran.tokens / ran.seconds for kind, ran in runs.items()}
        best = max(speeds[f"k={k}"] for k in range(depth))
        row = "".join(f"{speeds[kind] / best:10.3f}" for kind in kinds)
        guarded = runner("goodput", depth - 1, breaker=BreakerParameters())
        regrets = (runs["goodput"].regret, run(pools, guarded, load, Random(seed)).regret)
        print(f"{name:16s}{row}  {regrets[0]:8.1%}  {regrets[1]:12.1%}")
    print("regret: goodput against an oracle that knows the best k of every segment\n")


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
            run(pools, runner(kind, k_max, breaker=parameters), load, Random(seed), watch)
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
            ran = run(mixed, auto, [Segment("edge", requests, 3600)], Random(seed))
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


def million(pools: Pools, seed: int, count: int) -> None:
    """The cost of goodput and breaker together, simulation included."""
    k_max = depth_of(pools) - 1
    load = [segment for _, load in cells(pools, seed) for segment in load] * 1000
    ran = run(
        pools, runner("goodput", k_max, breaker=BreakerParameters()), load, Random(seed), most=count
    )
    print(
        f"{ran.steps:,} steps of goodput and breaker in {ran.cpu:.1f} s of CPU: "
        f"{ran.cpu / ran.steps * 1e6:.1f} µs a step, drawing it included; regret {ran.regret:.1%}"
    )


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", action="append", type=Path, metavar="FILE")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.synthetic:
        pools = make_pools(Random(arguments.seed), (1, 4, 8, 16))
        print("SYNTHETIC steps: no engine was measured")
    else:
        pools = easiest_first(read_pools(records(arguments.steps or RECORDED)))
        count = sum(len(cell.noise) for cell in pools.values())
        print(f"{count:,} recorded steps of a real engine")
    if not pools:
        parser.exit(1, "no batch size was recorded at every k\n")
    table(pools, arguments.seed)
    collapse(pools, arguments.seed)
    edge(pools, arguments.seed)
    million(pools, arguments.seed, arguments.count)


if __name__ == "__main__":
    main()
