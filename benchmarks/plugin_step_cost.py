"""What the plugin takes of every step of an engine: microseconds, median and 99th percentile.

    python -m benchmarks.plugin_step_cost [--steps 2000] [--requests 8]

The plugin's real hooks on a scheduler that does nothing else, in turns with the same scheduler
without them, so that the difference is theirs. Schedulers with some of the hooks tell the parts:
each part is what the median grows by with it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from benchmarks.engines import table
from tests.support.drafting_scheduler import DraftingScheduler, make_request
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.cpu_times import CpuTimes
from specdeck.engine.plugin.dummy_steps import DummyRun
from specdeck.engine.plugin.engine import Build, StepListener, Tally
from specdeck.engine.plugin.fingerprint import Identity
from specdeck.engine.plugin.lookup import Lookup
from specdeck.engine.plugin.recorder import Recorder
from specdeck.engine.plugin.request_counts import RequestCounts
from specdeck.engine.plugin.request_pins import Pins
from specdeck.engine.policy.parameters import Catalogue
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import everywhere
from specdeck.engine.protocol.messages import Change, Policy

K_MAX = 8
BUDGET_US = 30.0


class Engine:
    """The contract with an engine, over that scheduler."""

    build = Build("0.32.0", "bench", "draft_model", "V1", K_MAX)

    def __init__(self, scheduler: DraftingScheduler) -> None:
        self._scheduler = scheduler
        self._lookup = Lookup(scheduler.dynamic_sd_lookup)

    def watch(self, listener: StepListener) -> None:
        Recorder(self._scheduler, K_MAX, listener)

    def set_k(self, k: int) -> None:
        self.set_table(everywhere(k).table)

    def set_table(self, table: Sequence[int]) -> None:
        self._lookup.write(table)

    def scheduled_k(self) -> int:
        return self._scheduler.dynamic_sd_lookup[len(self._scheduler.running)]

    def restore_schedule(self) -> None: ...

    def schedule(self) -> Sequence[int]:
        return self._scheduler.dynamic_sd_lookup

    def skip_drafter(self, on: bool) -> None: ...

    def rest_fruitless(self, rounds: int | None) -> None: ...

    def resync(self) -> int:
        return 0

    def requests(self) -> tuple[int, int]:
        return len(self._scheduler.running), 0

    def is_idle(self) -> bool:
        return not self._scheduler.running

    def make_dummy_steps(self, batch: int, k: int, steps: int) -> DummyRun:
        return DummyRun((), interrupted=True)

    def weights(self) -> None:
        return None

    def cpu_times(self) -> CpuTimes | None:
        return None

    def active_requests(self) -> dict[str, Any]:
        return {}

    def cohorts(self) -> dict[str, Any]:
        return {}

    def tally(self) -> Tally:
        return Tally(0, 0, (0,) * K_MAX, (0,) * K_MAX)

    def steps(self, since: int, most: int) -> list[Step]:
        return []


class Listener:
    """Hears of every step and does nothing about it, or has a policy learn and choose."""

    def __init__(self, runner: PolicyRunner | None = None) -> None:
        self._runner = runner

    def before_step(self) -> None: ...

    def after_step(self, step: Step) -> None:
        if self._runner is not None:
            self._runner.step(step, steering=True)

    def on_blind(self) -> None: ...

    def on_new_weights(self) -> None: ...


class UnmovedEngine(Engine):
    """Takes every k, and writes none."""

    def set_table(self, table: Sequence[int]) -> None: ...


PARTS = ("recorder", "policy, breaker", "curve", "pins, leases, trials", "writing k", "cohorts")


def ladder(requests: int, policy: Policy) -> list[DraftingScheduler]:
    """A plain scheduler, and one more for each of `PARTS`: the last one has all of them."""
    rungs = [DraftingScheduler(K_MAX, SpecDecodingStats.new) for _ in range(1 + len(PARTS))]
    assert RequestCounts(rungs[-1], K_MAX).available
    for rung in rungs:
        for number in range(requests):
            rung.add_request(make_request(number))
    _, recorded, choosing, measuring, held, writing, whole = rungs
    Engine(recorded).watch(Listener())
    runner = make_runner(policy)
    runner.curve = SimpleNamespace(add=lambda bucket, step: None)  # type: ignore[assignment]
    Engine(choosing).watch(Listener(runner))
    Engine(measuring).watch(Listener(make_runner(policy)))
    hook_up(UnmovedEngine(held), held, policy)
    hook_up(Engine(writing), writing, policy)
    hook_up(Engine(whole), whole, policy)
    return rungs


def make_runner(policy: Policy) -> PolicyRunner:
    """What learns and chooses, as the plugin makes it."""
    catalogue = Catalogue()
    runner = PolicyRunner.watching(catalogue, k=K_MAX, k_max=K_MAX, zero=True, wall=time.time)
    if policy != "fixed":
        runner.follow(policy, k=K_MAX, catalogue=catalogue)
    return runner


def hook_up(engine: Engine, scheduler: DraftingScheduler, policy: Policy) -> None:
    """Puts everything of the plugin's on a scheduler."""
    assert Pins(scheduler, K_MAX).available
    control = Control(
        engine, Identity({}), instance="bench", orchestration={},
        clock=time.monotonic, wall=time.time,
    )  # fmt: skip
    if policy != "fixed":
        control.change(Change(policy=policy))


def step(scheduler: DraftingScheduler, accepted: Sequence[int]) -> float:
    """Seconds of one step, in which so many tokens are accepted for each request."""
    sampled = [[1] * (1 + number) for number in accepted]
    began = time.perf_counter()
    output = scheduler.schedule()
    result = SimpleNamespace(req_ids=list(output.num_scheduled_tokens), sampled_token_ids=sampled)
    scheduler.update_from_output(output, result)
    scheduler.update_draft_token_ids(None)
    return time.perf_counter() - began


class Cost(NamedTuple):
    """What the hooks add to a step, microseconds."""

    median: float
    high: float
    """The 99th percentile."""
    parts: tuple[float, ...]
    """Of the median, by `PARTS`."""


def cost(requests: int, policy: Policy, steps: int) -> Cost:
    """Step by step against a plain scheduler at the same k, whose own work is the same."""
    rungs = ladder(requests, policy)
    plain, whole = rungs[0], rungs[-1]
    lists = [[k] * 2049 for k in range(K_MAX + 1)]
    draw, verified = random.Random(7).randrange, 0
    extra: list[list[float]] = [[] for _ in PARTS]
    for number in range(steps):
        k = whole.dynamic_sd_lookup[requests]
        same, accepted = lists[k], [draw(verified + 1) for _ in range(requests)]
        verified = k
        for rung in rungs[:-1]:
            rung.dynamic_sd_lookup = same
        first = number % len(rungs)
        took = {id(rung): step(rung, accepted) for rung in (*rungs[first:], *rungs[:first])}
        for found, rung in zip(extra, rungs[1:], strict=True):
            found.append((took[id(rung)] - took[id(plain)]) * 1e6)
    medians = [median(found) for found in extra]
    parts = [medians[0], *(more - less for less, more in pairwise(medians))]
    return Cost(medians[-1], sorted(extra[-1])[steps * 99 // 100], tuple(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--requests", type=int, nargs="*", default=[1, 8, 32, 256])
    options = parser.parse_args()
    rows = []
    policies: tuple[Policy, ...] = ("fixed", "threshold", "goodput")
    for policy in policies:
        for requests in options.requests:
            found = cost(requests, policy, options.steps)
            met = "yes" if found.median <= BUDGET_US else "no"
            parts = [f"{part:.1f}" for part in found.parts]
            rows.append(
                [policy, str(requests), *parts, f"{found.median:.1f}", f"{found.high:.1f}", met]
            )
    head = ["policy", "requests", *PARTS, "median µs", "p99 µs", f"≤ {BUDGET_US:.0f} µs"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
