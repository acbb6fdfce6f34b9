"""Part 6: one request with a k of its own among many, and what it costs everybody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from benchmarks.gpu.outputs import quantile
from benchmarks.gpu.parts import MAIN
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import Traffic, least_of, make_prompts, open_traffic

HEAD = ["pinned", "steps", "step, p50 ms", "step, p99 ms", "chunks", "between, p50 ms", "p99 ms"]


async def run(task: Task, report: Report) -> None:
    """Windows with and without the pinned request, in turn."""
    length = task.setup.length
    streams, rounds, seconds = (4, 1, 1.0) if task.small else (64, 4, 3.0)
    pins: list[int | None] = [None, 0] if task.small else [None, 0, 1, task.setup.k_max]
    steps: dict[int | None, list[float]] = {pin: [] for pin in pins}
    gaps: dict[int | None, list[float]] = {pin: [] for pin in pins}
    about = (
        f"{streams} streams at k = {task.setup.k_max}, one of which is pinned to the k named: "
        "milliseconds from step to step, and between the chunks of one streamed answer among the "
        "others."
    )
    async with open_traffic(task.engines[MAIN]) as traffic, traffic.load(streams - 2, length):
        for _ in range(rounds):
            for pin in pins:
                async with _add_one(traffic, pin, length), _time_one(traffic, gaps[pin], length):
                    steps[pin] += await traffic.time_steps(
                        seconds, lambda step: step.requests >= least_of(streams)
                    )
            report.put_table(
                "pins", HEAD, [_row(pin, steps[pin], gaps[pin]) for pin in pins], about
            )
    report.check("steps with every stream were seen", all(steps.values()))


def _row(pin: int | None, steps: list[float], gaps: list[float]) -> list[str]:
    return ["no" if pin is None else f"k = {pin}", *_spread(steps), *_spread(gaps)]


def _spread(seconds: list[float]) -> list[str]:
    if not seconds:
        return ["0", "–", "–"]
    found = (quantile(seconds, share) * 1000 for share in (0.5, 0.99))
    return [str(len(seconds)), *(f"{value:.2f}" for value in found)]


@contextlib.asynccontextmanager
async def _add_one(traffic: Traffic, pin: int | None, length: int) -> AsyncIterator[None]:
    """One more stream while the block runs, pinned or not."""
    more: dict[str, Any] = {} if pin is None else {"vllm_xargs": {"specdeck_k": pin}}

    async def stream() -> None:
        while True:
            await traffic.complete(make_prompts(1, seed=3)[0], length - 64, **more)

    async with _task(stream()):
        yield


@contextlib.asynccontextmanager
async def _time_one(traffic: Traffic, gaps: list[float], length: int) -> AsyncIterator[None]:
    """One more stream while the block runs; the seconds between its chunks."""

    async def stream() -> None:
        while True:
            await _stream_once(traffic, gaps, length)

    async with _task(stream()):
        yield


async def _stream_once(traffic: Traffic, gaps: list[float], length: int) -> None:
    body = {
        "model": "demo",
        "prompt": make_prompts(1, seed=4)[0],
        "max_tokens": length - 64,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    clock = asyncio.get_running_loop().time
    async with traffic.client.stream("POST", "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        before = None
        async for line in reply.aiter_lines():
            if line.startswith("data:"):
                now = clock()
                if before is not None:
                    gaps.append(now - before)
                before = now


@contextlib.asynccontextmanager
async def _task(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
