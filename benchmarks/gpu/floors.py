"""Part 8: how often greedy output differs from itself, whoever drafts."""

from __future__ import annotations

from benchmarks.gpu.engines import Standing
from benchmarks.gpu.outputs import compare_all
from benchmarks.gpu.parts import MAIN
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import make_prompts, open_traffic, take_reference

HEAD = ["engine", "floor", "differ"]
ABOUT = (
    "Outputs that differ between two ways to make the same ones. The floor of *repeat* is the same "
    "batch twice; of *batch*, each prompt alone against all at once, at k = 0; of *shape*, each "
    "prompt alone at k = 0 against alone at another k. Only what exceeds these is news."
)


async def run(task: Task, report: Report) -> None:
    """The three floors, on ordinary and on batch-invariant kernels."""
    rows: list[list[str]] = []
    for standing in task.running(MAIN, "invariant"):
        for floor, cell, holds in await _measure(task, standing):
            rows.append([f"`{standing.variant}`", floor, cell])
            if standing.variant == "invariant":
                found = "" if holds else cell
                report.check(f"`{standing.variant}`: no difference, {floor}", holds, found)
        report.put_table("floors", HEAD, rows, ABOUT)


async def _measure(task: Task, standing: Standing) -> list[tuple[str, str, bool]]:
    count, few, tokens = (4, 2, 24) if task.small else (64, 16, 128)
    prompts, found = make_prompts(count), list[tuple[str, str, bool]]()
    k_max = task.setup.k_max
    async with open_traffic(standing) as traffic:
        for k in (0, k_max):
            await traffic.put(k=k)
            together = await take_reference(traffic, prompts, tokens)
            differ = compare_all(together, await traffic.batch(prompts, tokens))
            name = f"repeat, k = {k}, {count} at once"
            found.append((name, differ.as_cell(), not differ.differ))
            if k == 0:
                batch = together
        await traffic.put(k=0)
        alone = await traffic.alone(prompts[:few], tokens)
        differ = compare_all(batch[:few], alone)
        found.append((f"batch, alone and among {count}", differ.as_cell(), not differ.differ))
        again = compare_all(batch[:few], await traffic.alone(prompts[:few], tokens))
        found.append(("the same once more", again.as_cell(), not again.differ))
        for k in sorted({1, k_max}):
            await traffic.put(k=k)
            differ = compare_all(alone, await traffic.alone(prompts[:few], tokens))
            found.append((f"shape, k = {k} and k = 0", differ.as_cell(), not differ.differ))
    return found
