"""Part 10: throughput with the plugin and without it, on two engines in turn."""

from __future__ import annotations

import asyncio

from benchmarks.engines import middle
from benchmarks.gpu.engines import Standing
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import Traffic, open_traffic

HEAD = ["round", "with, tok/s", "without, tok/s", "with / without"]


async def run(task: Task, report: Report) -> None:
    """Windows of load on one engine and then on the other; the order changes every round."""
    if len(running := task.running("plain", "stock")) < 2:
        return
    streams, rounds, seconds = (8, 1, 2.0) if task.small else (256, 6, 5.0)
    rows: list[list[str]] = []
    ratios: list[float] = []
    for number in range(rounds):
        speeds: dict[str, float] = {}
        for standing in running if number % 2 else reversed(running):
            speeds[standing.role] = await _measure(standing, streams, seconds, task.setup.length)
        ratios.append(speeds["plain"] / speeds["stock"])
        rows.append(
            [
                str(number + 1),
                f"{speeds['plain']:.0f}",
                f"{speeds['stock']:.0f}",
                f"{ratios[-1]:.3f}",
            ]
        )
        about = (
            f"{streams} streams at k_max, no tiers on either engine; the median ratio so far is "
            f"**{middle(ratios):.3f}**."
        )
        report.put_table("plugin", HEAD, rows, about)


async def _measure(standing: Standing, streams: int, seconds: float, length: int) -> float:
    async with (
        open_traffic(standing, plugin=standing.role == "plain") as traffic,
        traffic.load(streams, length),
    ):
        return await _speed(traffic, seconds)


async def _speed(traffic: Traffic, seconds: float) -> float:
    """Tokens per second over a window."""
    clock = asyncio.get_running_loop().time
    before, began = await traffic.driver.counters(), clock()
    await asyncio.sleep(seconds)
    after, ended = await traffic.driver.counters(), clock()
    return (after["generated"] - before["generated"]) / (ended - began)
