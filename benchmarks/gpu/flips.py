"""Part 2: random flips of k and mode under load, and target-only, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.gpu.engines import Standing
from benchmarks.gpu.outputs import Output, compare, compare_all, quantile
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import (
    flip,
    make_prompts,
    open_traffic,
    stream_beside,
    take_reference,
)

HEAD = [
    "engine",
    "streams",
    "flips",
    "a flip, p50 / p99 ms",
    "outputs",
    "differ from target-only",
    "target-only from itself",
    "from an engine without speculation",
]
PAIRS = (("main", "target"), ("invariant", "invariant-target"))
"""Engines with speculation, each with the one without to hold against it."""


async def run(task: Task, report: Report) -> None:
    """Flips under few and under many streams, on ordinary and on batch-invariant kernels."""
    rows: list[list[str]] = []
    for role, reference in PAIRS:
        for standing in task.running(role):
            for streams in (2, 4) if task.small else (8, 64):
                without = next(iter(task.running(reference)), None)
                rows.append(await _fly(task, report, standing, without, streams))
                report.put_table("flips", HEAD, rows, ABOUT)


ABOUT = (
    "Greedy continuations, over and over, while k and mode are changed at random; each is held "
    "against the same prompt at k = 0 in a batch of the same size. The margin is how far the "
    "likeliest token was ahead of the next, in nats, where an output first differs: bfloat16 has "
    "ties up to about 0.125, and a batch-invariant engine must not differ at all."
)


async def _fly(
    task: Task, report: Report, standing: Standing, without: Standing | None, streams: int
) -> list[str]:
    prompts = make_prompts(streams)
    tokens, flips = (32, 16) if task.small else (192, 200)
    name = f"`{standing.variant}`, {streams} streams"
    hard = await _reference_of(without, prompts, tokens)
    async with open_traffic(standing) as traffic:
        await traffic.put(mode="target-only")
        soft = await take_reference(traffic, prompts, tokens)
        again = compare_all(soft, await traffic.batch(prompts, tokens))
        await traffic.put(mode="speculate")
        took, flight = await stream_beside(
            flip(traffic, flips, task.setup.k_max),
            [partial(traffic.complete, prompt, tokens) for prompt in prompts],
        )
    differ = compare(soft, flight.outputs)
    flight.check(report, f"{name}: ")
    short = sum(len(output.tokens) != tokens for _, output in flight.outputs)
    report.check(f"{name}: every output has all its tokens", not short, str(short) if short else "")
    if "invariant" in standing.variant:
        found_here = differ.as_cell() if differ.differ else ""
        report.check(f"{name}: every output is target-only's", not differ.differ, found_here)
    p50, p99 = (quantile(took, share) * 1000 for share in (0.5, 0.99))
    return [
        f"`{standing.variant}`",
        str(streams),
        str(flips),
        f"{p50:.1f} / {p99:.1f}",
        str(len(flight.outputs)),
        differ.as_cell(),
        again.as_cell(),
        compare_all(soft, hard).as_cell() if hard else "–",
    ]


async def _reference_of(
    standing: Standing | None, prompts: Sequence[Sequence[int]], tokens: int
) -> list[Output]:
    if standing is None:
        return []
    async with open_traffic(standing) as traffic:
        return await traffic.batch(prompts, tokens)
