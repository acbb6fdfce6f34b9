"""Part 4: target-only without the drafter's work, and back, again and again under load."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from benchmarks.gpu.outputs import compare, quantile
from benchmarks.gpu.parts import MAIN
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import (
    SETTLING,
    Traffic,
    make_prompts,
    open_traffic,
    stream_beside,
    take_reference,
)

PAUSE_S = 0.15
"""Between two changes: some steps of each kind."""


async def run(task: Task, report: Report) -> None:
    """Cycles under streams: what each change takes, outputs, and acceptance afterwards."""
    cycles, streams, tokens = (5, 4, 32) if task.small else (100, 8, 192)
    prompts = make_prompts(streams)
    async with open_traffic(task.engines[MAIN]) as traffic:
        can = (await traffic.driver.state())["capabilities"]
        refusal = next((one for one in can if one["name"] == "cold" and not one["available"]), None)
        if refusal is not None:
            report.put("refused", f"The engine refuses cold: {refusal['reason']}")
            return
        await traffic.put(mode="target-only")
        reference = await take_reference(traffic, prompts, tokens)
        await traffic.put(mode="speculate")
        healthy = await _acceptance(traffic, streams, tokens)
        before = await traffic.driver.counters()
        times, flight = await stream_beside(
            _cycle(traffic, cycles),
            [partial(traffic.complete, prompt, tokens) for prompt in prompts],
        )
        after = await traffic.driver.counters()
        await traffic.restore()
        recovered = await _acceptance(traffic, streams, tokens)
    differ = compare(reference, flight.outputs)
    rows = [
        ["cycles, streams", f"{cycles}, {streams}"],
        ["into cold, p50 / p99 ms", _spread(times.into)],
        ["back, with the resync, p50 / p99 ms", _spread(times.back)],
        ["from the change back to the first draft verified, p50 / p99 ms", _spread(times.drafting)],
        ["requests preempted by resyncs", f"{after['preemptions'] - before['preemptions']:.0f}"],
        ["outputs that differ from target-only's", differ.as_cell()],
        ["acceptance before / after", f"{healthy:.3f} / {recovered:.3f}"],
    ]
    report.put_table("cold", ["", ""], rows)
    flight.check(report)
    kept = abs(recovered - healthy) < 0.1
    report.check("acceptance comes back", kept, "" if kept else f"{healthy:.3f} → {recovered:.3f}")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every cycle."""

    into: list[float]
    back: list[float]
    drafting: list[float]
    """From the last step before the change back to the first that verified drafts."""


async def _cycle(traffic: Traffic, cycles: int) -> Times:
    times = Times([], [], [])
    for _ in range(cycles):
        times.into.append(await _timed_put(traffic, mode="target-only", fallback="cold"))
        await asyncio.sleep(PAUSE_S)
        since = (await traffic.driver.state())["step"]
        times.back.append(await _timed_put(traffic, mode="speculate"))
        await asyncio.sleep(PAUSE_S)
        times.drafting.extend(await _until_drafts(traffic, since))
    return times


async def _timed_put(traffic: Traffic, **change: str) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await traffic.put(**change)
    return clock() - began


async def _until_drafts(traffic: Traffic, since: int) -> list[float]:
    """Seconds from the last step before the change to the first that verified drafts."""
    steps = await traffic.steps(since)
    quiet = [step for step in steps if step.step <= since + SETTLING and not step.drafted]
    first = next((step for step in steps if step.drafted), None)
    return [first.t - quiet[0].t] if first is not None and quiet else []


async def _acceptance(traffic: Traffic, streams: int, tokens: int) -> float:
    before = await traffic.driver.counters()
    await traffic.batch(make_prompts(streams, seed=99), tokens)
    after = await traffic.driver.counters()
    drafted = after["drafted"] - before["drafted"]
    return (after["accepted"] - before["accepted"]) / drafted if drafted else 0.0


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "–"
    p50, p99 = (quantile(seconds, share) * 1000 for share in (0.5, 0.99))
    return f"{p50:.1f} / {p99:.1f} ({len(seconds)})"
