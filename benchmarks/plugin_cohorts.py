"""What telling requests apart costs the engine core: for each that finishes, and for each draft.

    python -m benchmarks.plugin_cohorts [--requests 4000]

The plugin's real hooks on a scheduler that counts drafts with vLLM's own class, against the same
scheduler without them. Both do the same requests by turns, block by block, so that the difference
is the hooks' own, whatever else the machine does. `the same few` is usual traffic; in `all
different` each request has a cohort of its own, which is the worst that a client can do: every one
folds another. A look is what `GET /v1/specdeck/cohorts` holds the engine core up for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from benchmarks.engines import table
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from specdeck.engine.plugin.request_counts import RequestCounts

K_MAX = 8
DRAFTS = 40
"""Of a request, which has some 150 tokens then."""
BLOCK = 50
"""Requests that are taken, drafted for and finished in a turn."""
BUDGET_US = 5.0
_FOUR = 4


class Scheduler:
    """Takes requests, counts their drafts as vLLM does, and lets go of them."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: Any,
        request_id: str,
    ) -> Any:
        stats = spec_decoding_stats or SpecDecodingStats.new(K_MAX)
        stats.observe_draft(num_draft_tokens, num_accepted_tokens)
        return stats

    def _free_request(self, request: Any) -> None:
        del self.requests[request.request_id]

    def free(self, request: Any) -> None:
        """As vLLM ends a request."""
        self._free_request(request)


_REASON = SimpleNamespace(name="STOP")


def make_request(number: int, *, alone: bool) -> Any:
    """A request as vLLM has it; one that is `alone` shares its cohort with none of thousands."""
    prompt, output, cached = 900, 150, 512
    adapter, temperature, extra = None, 0.0, None
    if alone:  # four by four by four by four, and two of each of the rest
        prompt = 4 ** (number % 9)
        output = 4 ** (number // 9 % 9)
        cached = prompt * (number // 81 % _FOUR) // _FOUR
        temperature = float(number // 324 % 2)
        extra = {"specdeck_k": 1} if number // 648 % 2 else None
        adapter = SimpleNamespace(lora_name=f"adapter {number // 1296 % 16}")
    return SimpleNamespace(
        request_id=f"cmpl-{number:032x}",
        sampling_params=SimpleNamespace(
            temperature=temperature, extra_args=extra, structured_outputs=None
        ),
        lora_request=adapter,
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        num_preemptions=0,
        arrival_time=0.0,
        prefill_stats=SimpleNamespace(num_prompt_tokens=prompt, num_cached_tokens=cached),
        get_finished_reason=lambda: _REASON,
    )


def draft(scheduler: Scheduler, requests: Sequence[Any]) -> None:
    """As a step does for each that runs, so often."""
    for number in range(DRAFTS):
        stats = None
        for request in requests:
            stats = scheduler.make_spec_decoding_stats(
                stats,
                num_draft_tokens=K_MAX,
                num_accepted_tokens=number % (K_MAX + 1),
                num_invalid_spec_tokens=None,
                request_id=request.request_id,
            )


def time_call(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run_block(scheduler: Scheduler, requests: Sequence[Any]) -> tuple[float, float]:
    """Seconds of taking and ending them, and of their drafts."""

    def take() -> None:
        for request in requests:
            scheduler.add_request(request)

    def end() -> None:
        for request in requests:
            scheduler.free(request)

    took = time_call(take)
    drafting = time_call(lambda: draft(scheduler, requests))
    return took + time_call(end), drafting


def measure(count: int, *, alone: bool) -> tuple[float, float, float]:
    """Median microseconds that the hooks add to a request and to a draft, and a look's."""
    plain, ours = Scheduler(), Scheduler()
    counts = RequestCounts(ours, K_MAX)
    assert counts.available
    ends, drafts = list[float](), list[float]()
    for first in range(0, count, BLOCK):
        requests = [make_request(first + n, alone=alone) for n in range(BLOCK)]
        order = (plain, ours) if first // BLOCK % 2 else (ours, plain)
        took = {id(each): run_block(each, requests) for each in order}
        extra = [b - a for a, b in zip(took[id(plain)], took[id(ours)], strict=True)]
        ends.append(extra[0] / BLOCK * 1e6)
        drafts.append(extra[1] / BLOCK / DRAFTS * 1e6)
    assert sum(row[8] for row in counts.cells.cells()) <= count

    def look() -> None:
        cells = {"cells": counts.cells.cells(), "folded": counts.cells.folded()}
        json.dumps({**cells, "unfinished": counts.unfinished()})

    looks = [time_call(look) * 1e6 for _ in range(20)]
    return statistics.median(ends), statistics.median(drafts), statistics.median(looks)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=4000)
    count = parser.parse_args().requests
    rows = []
    for name, alone in (("the same few", False), ("all different", True)):
        ended, drafted, look = measure(count, alone=alone)
        met = "yes" if ended <= BUDGET_US else "no"
        figures = [f"{ended:.2f}", met, f"{drafted:.3f}", f"{look:.0f}"]
        rows.append([name, *figures])
    heads = ["cohorts", "a finished request, µs", f"≤ {BUDGET_US:.0f} µs", "a draft, µs",
             "a look, µs"]  # fmt: skip
    print(table(heads, rows))


if __name__ == "__main__":
    main()
