"""Part 3: what a step takes at every k and batch size, with graphs for every k and without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.engines import middle
from benchmarks.gpu.engines import Standing
from benchmarks.gpu.outputs import milliseconds
from benchmarks.gpu.parts import MAIN
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import Traffic, least_of, open_traffic

from specdeck.engine.policy.step import Step

Cells = dict[tuple[int, int | None], list[float]]
"""Seconds of steps by batch size and k; k None without speculation."""


async def run(task: Task, report: Report) -> None:
    """A table of step times for each engine, and k = 0 against no speculation."""
    sizes = (1, 4) if task.small else (1, 8, 32, 64, 96, 128)
    ks = [0, task.setup.k_max] if task.small else list(range(task.setup.k_max + 1))
    seconds = 1.0 if task.small else 1.2
    without: Cells = {}
    for standing in task.running("target"):
        async with open_traffic(standing) as traffic:
            for size in sizes:
                without |= await _measure(traffic, size, [None], seconds, task.setup.length)
    seen: set[str] = set()
    for standing in task.running(MAIN, "plain"):
        if standing.variant not in seen:
            seen.add(standing.variant)
            await _measure_engine(report, standing, sizes, ks, seconds, task.setup.length, without)


async def _measure_engine(
    report: Report,
    standing: Standing,
    sizes: tuple[int, ...],
    ks: list[int],
    seconds: float,
    length: int,
    without: Cells,
) -> None:
    head = ["requests", "no speculation", *(f"k = {k}" for k in ks), "k = 0 / no speculation"]
    about = f"Engine `{standing.variant}`: {ABOUT}"
    cells, rows = dict(without), list[list[str]]()
    async with open_traffic(standing) as traffic:
        for size in sizes:
            cells |= await _measure(traffic, size, ks, seconds, length)
            rows.append(
                [
                    str(size),
                    *(milliseconds(cells.get((size, k), [])) for k in (None, *ks)),
                    _ratio(cells.get((size, 0), []), cells.get((size, None), [])),
                ]
            )
            report.put_table(standing.variant, head, rows, about)


ABOUT = (
    "median milliseconds from the end of a step to the end of the next, and how many steps: those "
    "in which so many requests decoded, or one of 32 fewer, no prompt was computed and k had "
    "settled."
)


async def _measure(
    traffic: Traffic, size: int, ks: Sequence[int | None], seconds: float, length: int
) -> Cells:
    cells: Cells = {}
    async with traffic.load(size, length):
        for k in ks:
            if k is not None:
                await traffic.put(k=k)
            is_wanted = partial(_is_of, size, k or 0)
            cells[size, k] = await traffic.time_steps(seconds, is_wanted)
    return cells


def _is_of(size: int, k: int, step: Step) -> bool:
    return least_of(size) <= step.requests <= size and step.k == k


def _ratio(above: list[float], below: list[float]) -> str:
    return f"{middle(above) / middle(below):.2f}" if above and below else "–"
