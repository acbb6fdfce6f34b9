"""What the plugin takes of every step of an engine: microseconds, median and 99th percentile.

    python -m benchmarks.plugin_step_cost [--steps 20000] [--requests 8]

The plugin's real hooks (recorder, control, policy, breaker, curve, baseline of trials) on
a scheduler that does nothing else, alternating with the same scheduler without them, so that
the difference is theirs.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from benchmarks.engines import table
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.core_engine import fill_lookup
from specdeck.engine.plugin.engine import Build, StepListener, Tally
from specdeck.engine.plugin.fingerprint import Identity
from specdeck.engine.plugin.recorder import Recorder
from specdeck.engine.plugin.request_pins import Pins
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket, everywhere
from specdeck.engine.protocol.messages import Change, Policy

K_MAX = 8
BUDGET_US = 30.0


class Scheduler:
    """Does what the hooks want to see, and nothing more."""

    def __init__(self, requests: int) -> None:
        self.requests = {str(n): SimpleNamespace(spec_token_ids=[]) for n in range(requests)}
        self.running = list(self.requests)
        self.finished_req_ids: set[str] = set()
        self.dynamic_sd_lookup = [K_MAX] * 257
        self._random = random.Random(7)

    def add_request(self, request: Any) -> None:
        """Nothing: the requests are there from the start."""

    def update_draft_token_ids(self, drafts: Any) -> None:
        """Where pins cut drafts."""

    def schedule(self) -> Any:
        k = self.dynamic_sd_lookup[len(self.running)]
        counts = dict.fromkeys(self.running, 1 + k)
        drafts = dict.fromkeys(self.running, [0] * k) if k else {}
        return SimpleNamespace(
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=sum(counts.values()),
            num_spec_tokens_to_schedule=k,
            scheduled_spec_decode_tokens=drafts,
        )

    def update_from_output(self, output: Any, _: Any) -> Any:
        k, made, stats = output.num_spec_tokens_to_schedule, [], None
        for request in self.running:
            accepted = self._random.randrange(k + 1) if k else 0
            if k:
                stats = self.make_spec_decoding_stats(
                    stats,
                    num_draft_tokens=k,
                    num_accepted_tokens=accepted,
                    num_invalid_spec_tokens=None,
                    request_id=request,
                )
            made.append(SimpleNamespace(new_token_ids=[1] * (1 + accepted)))
        self.make_stats(stats)
        return {0: SimpleNamespace(outputs=made)}

    def make_stats(self, spec_decoding_stats: Any) -> None:
        """Once a step, with the sums over its drafts, as vLLM does."""

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: Any,
        request_id: str,
    ) -> Any:
        """As vLLM counts."""
        stats = spec_decoding_stats or SpecDecodingStats.new(K_MAX)
        stats.observe_draft(num_draft_tokens, num_accepted_tokens)
        return stats


class Engine:
    """The contract with an engine, over that scheduler."""

    build = Build("0.32.0", "bench", "draft_model", "V1", K_MAX)

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._buckets = [bucket(size) for size in range(257)]

    def watch(self, listener: StepListener) -> None:
        Recorder(self._scheduler, K_MAX, listener)

    def set_k(self, k: int) -> None:
        self.set_table(everywhere(k).table)

    def set_table(self, table: Sequence[int]) -> None:
        held = self._scheduler.dynamic_sd_lookup
        held[:] = fill_lookup(table, self._buckets)

    def scheduled_k(self) -> int:
        return self._scheduler.dynamic_sd_lookup[len(self._scheduler.running)]

    def restore_schedule(self) -> None: ...

    def schedule(self) -> Sequence[int]:
        return self._scheduler.dynamic_sd_lookup

    def skip_drafter(self, on: bool) -> None: ...

    def resync(self) -> int:
        return 0

    def requests(self) -> tuple[int, int]:
        return len(self._scheduler.running), 0

    def weights(self) -> None:
        return None

    def tally(self) -> Tally:
        return Tally(0, 0, (0,) * K_MAX, (0,) * K_MAX)

    def steps(self, since: int, most: int) -> list[Step]:
        return []


def hook_scheduler(requests: int, policy: Policy) -> Scheduler:
    """A scheduler with everything of the plugin's on it."""
    scheduler = Scheduler(requests)
    assert Pins(scheduler, K_MAX).available
    control = Control(
        Engine(scheduler), Identity({}), instance="bench", orchestration={},
        clock=time.monotonic, wall=time.time,
    )  # fmt: skip
    if policy != "fixed":
        control.change(Change(policy=policy))
    return scheduler


def step(scheduler: Scheduler) -> float:
    """Seconds of one step."""
    began = time.perf_counter()
    output = scheduler.schedule()
    scheduler.update_from_output(output, None)
    scheduler.update_draft_token_ids(None)
    return time.perf_counter() - began


def cost(requests: int, policy: Policy, steps: int) -> tuple[float, float]:
    """Median and 99th percentile of what the hooks add to a step, microseconds.

    Step by step against a plain one at the same k, the engine's own work being the same.
    """
    plain, ours = Scheduler(requests), hook_scheduler(requests, policy)
    extra = []
    for number in range(steps):
        plain.dynamic_sd_lookup = [ours.dynamic_sd_lookup[requests]] * 257
        order = (plain, ours) if number % 2 else (ours, plain)
        took = {id(each): step(each) for each in order}
        extra.append((took[id(ours)] - took[id(plain)]) * 1e6)
    extra.sort()
    return extra[steps // 2], extra[steps * 99 // 100]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--requests", type=int, nargs="*", default=[1, 8, 32])
    options = parser.parse_args()
    rows = []
    policies: tuple[Policy, ...] = ("fixed", "threshold", "goodput")
    for policy in policies:
        for requests in options.requests:
            median, high = cost(requests, policy, options.steps)
            met = "yes" if median <= BUDGET_US else "no"
            rows.append([policy, str(requests), f"{median:.1f}", f"{high:.1f}", met])
    print(table(["policy", "requests", "median µs", "p99 µs", f"≤ {BUDGET_US:.0f} µs"], rows))


if __name__ == "__main__":
    main()
