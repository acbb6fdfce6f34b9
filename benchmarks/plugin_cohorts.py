"""What telling requests apart costs the engine core: for each that finishes, and for each draft.

    python -m benchmarks.plugin_cohorts [--requests 4000]

The plugin's real hooks on a scheduler that counts drafts with vLLM's own class, 50 requests a step,
against the same scheduler without them. Both do the same requests by turns, block by block, so
that the difference is the hooks' own, whatever else the machine does. `the same few` is usual
traffic; in `all different` each request has a cohort of its own, which is the worst that a client
can do: every one folds another. A look is what `GET /v1/specdeck/cohorts` holds the engine core up
for.
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
from tests.support.drafting_scheduler import DraftingScheduler, make_request
from vllm.sampling_params import SamplingParams
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from specdeck.engine.plugin.request_counts import RequestCounts

K_MAX = 8
DRAFTS = 40
"""Of a request, which has some 150 tokens then."""
BLOCK = 50
"""Requests that are taken, drafted for and finished in a turn."""
BUDGET_US = 5.0
_FOUR = 4


def make_cohort(number: int, *, alone: bool) -> Any:
    """A request as vLLM has it; one that is `alone` shares its cohort with none of thousands."""
    if not alone:
        return make_request(number)
    # four by four by four by four, and two of each of the rest
    prompt, output = 4 ** (number % 9), 4 ** (number // 9 % 9)
    cached = prompt * (number // 81 % _FOUR) // _FOUR
    return make_request(
        number,
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        lora_request=SimpleNamespace(lora_name=f"adapter {number // 1296 % 16}"),
        prefill_stats=SimpleNamespace(num_prompt_tokens=prompt, num_cached_tokens=cached),
        sampling_params=SamplingParams(
            temperature=float(number // 324 % 2),
            extra_args={"specdeck_k": 1} if number // 648 % 2 else None,
        ),
    )


def draft(scheduler: DraftingScheduler) -> None:
    """So many steps of all that run, after the first, in which there is no draft yet."""
    for number in range(DRAFTS + 1):
        output = scheduler.schedule()
        scheduler.finish_step(output, [number % (K_MAX + 1)] * len(scheduler.running))


def time_call(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run_block(scheduler: DraftingScheduler, requests: Sequence[Any]) -> tuple[float, float]:
    """Seconds of taking and ending them, and of their drafts."""

    def take() -> None:
        for request in requests:
            scheduler.add_request(request)

    def end() -> None:
        for request in requests:
            scheduler.free(request)

    took = time_call(take)
    drafting = time_call(lambda: draft(scheduler))
    return took + time_call(end), drafting


def measure(count: int, *, alone: bool) -> tuple[float, float, float]:
    """Median microseconds that the hooks add to a request and to a draft, and a look's."""
    plain, ours = (DraftingScheduler(K_MAX, SpecDecodingStats.new) for _ in range(2))
    counts = RequestCounts(ours, K_MAX)
    assert counts.available
    ends, drafts = list[float](), list[float]()
    for first in range(0, count, BLOCK):
        requests = [make_cohort(first + n, alone=alone) for n in range(BLOCK)]
        order = (plain, ours) if first // BLOCK % 2 else (ours, plain)
        took = {id(each): run_block(each, requests) for each in order}
        extra = [b - a for a, b in zip(took[id(plain)], took[id(ours)], strict=True)]
        ends.append(extra[0] / BLOCK * 1e6)
        drafts.append(extra[1] / BLOCK / DRAFTS * 1e6)
    assert sum(row[8] for row in counts.cells.cells()) <= count

    def look() -> None:
        cells = {"cells": counts.cells.cells(), "folded": counts.cells.list_folded()}
        json.dumps({**cells, "unfinished": counts.sum_unfinished()})

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
