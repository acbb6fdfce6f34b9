"""Part 7: how many passes the drafter really makes at each k, counted inside the engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.engines import Standing
from benchmarks.gpu.probe import Counts
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import SETTLING, Traffic, open_traffic

HEAD = [
    "engine",
    "k",
    "calls of the drafter",
    "passes a call",
    "of them replayed",
    "drafted a draft",
]
ROLES = ("probed", "probed-eagle", "probed-eagle-plain")
LEAST_CALLS = 60
ABOUT = (
    "Passes of the draft model for each call of the drafter, of which there is one in a step: "
    "those made in Python, and those within CUDA graphs that were replayed. The last column is by "
    "vLLM's own counters."
)


@dataclass(frozen=True, slots=True)
class Visit:
    """What was counted at one k."""

    calls: int
    passes: int
    replayed: int
    drafts: float
    drafted: float

    @property
    def passes_per_call(self) -> float | None:
        """None when the drafter was not called."""
        return self.passes / self.calls if self.calls else None


async def run(task: Task, report: Report) -> None:
    """Every k, warm and cold, on each engine that counts."""
    rows: list[list[str]] = []
    streams, seconds = (3, 0.7) if task.small else (8, 2.0)
    for standing in task.running(*ROLES):
        async with open_traffic(standing) as traffic:
            state = await traffic.driver.state()
            report.put(
                standing.variant,
                f"`{standing.variant}`: {state['method']} on {state['runner']}, "
                f"{Counts.read(Path(standing.counts)).graphs} graphs hold passes of the drafter. "
                f"Its `live_k`: {_describe_live_k(state)}.",
            )
            async with traffic.load(streams, task.setup.length):
                for k in range(task.setup.k_max, -1, -1):
                    await traffic.put(k=k)
                    visit = await _visit(traffic, standing, seconds)
                    rows.append(_row(standing, f"{k}", visit))
                    _check(report, standing, k, visit, state)
                    report.put_table("passes", HEAD, rows, ABOUT)
                if _can(state, "cold"):
                    await traffic.put(mode="target-only", fallback="cold")
                    visit = await _visit(traffic, standing, seconds)
                    rows.append(_row(standing, "0, cold", visit))
                    report.put_table("passes", HEAD, rows, ABOUT)
                    name = f"`{standing.variant}`: no pass while cold"
                    report.check(name, visit.passes == 0, f"{visit.passes}" if visit.passes else "")


async def _visit(traffic: Traffic, standing: Standing, seconds: float) -> Visit:
    settled = (await traffic.driver.state())["step"] + SETTLING
    await traffic.driver.until(lambda state: state["step"] > settled)
    before, counted = Counts.read(Path(standing.counts)), await traffic.driver.counters()
    await asyncio.sleep(seconds)
    # One call under way weighs little in so many.
    await traffic.driver.until(lambda state: state["step"] > settled + LEAST_CALLS)
    after, later = Counts.read(Path(standing.counts)), await traffic.driver.counters()
    return Visit(
        after.proposals - before.proposals,
        after.passes - before.passes,
        after.replayed - before.replayed,
        later["drafts"] - counted["drafts"],
        later["drafted"] - counted["drafted"],
    )


def _row(standing: Standing, k: str, visit: Visit) -> list[str]:
    per_call = visit.passes_per_call
    return [
        f"`{standing.variant}`",
        k,
        str(visit.calls),
        "–" if per_call is None else f"{per_call:.2f}",
        f"{visit.replayed / visit.passes:.0%}" if visit.passes else "–",
        f"{visit.drafted / visit.drafts:.2f}" if visit.drafts else "–",
    ]


def _check(report: Report, standing: Standing, k: int, visit: Visit, state: dict[str, Any]) -> None:
    """That a smaller k is less drafting, where the engine's capability does not deny it."""
    per_call = visit.passes_per_call
    wanted = max(k, 1)  # warm: the drafter stays in step by one pass
    if "same drafting" in _describe_live_k(state):
        return
    close = per_call is not None and abs(per_call - wanted) < 0.1
    found = "" if close else f"{0 if per_call is None else per_call:.2f}"
    report.check(f"`{standing.variant}`: {wanted} passes a call at k = {k}", close, found)


def _describe_live_k(state: dict[str, Any]) -> str:
    found = next(one for one in state["capabilities"] if one["name"] == "live_k")
    return str(found.get("reason") or "nothing to remark")


def _can(state: dict[str, Any], name: str) -> bool:
    return any(one["name"] == name and one["available"] for one in state["capabilities"])
