"""Part 5: what tiers for every k cost at start, in seconds and in memory for graphs."""

from __future__ import annotations

import re
import time

from benchmarks.gpu.engines import EngineFailed, read_tail, start_alone
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task

CAPTURED = re.compile(r"Graph capturing finished in (\d+) secs, took ([-\d.]+) GiB")
COMPILED = re.compile(r"init engine .* \(compilation: ([\d.]+) s")
HEAD = ["start", "engine", "start to ready, s", "compilation, s", "capture, s", "graph memory, GiB"]
VARIANTS = ("plain", "tiers")
ROUNDS = 2


async def run(task: Task, report: Report) -> None:
    """Starts each engine alone, in turn: the second time with what the first has compiled."""
    until = time.monotonic() + task.seconds
    rows: list[list[str]] = []
    for number in range(ROUNDS):
        for name in VARIANTS:
            began = ["first", "second"][number]
            try:
                with start_alone(name, task.setup, until) as engine:
                    log = engine.log.read_text(errors="replace")
                    rows.append([began, f"`{name}`", f"{engine.start_s:.1f}", *read_costs(log)])
            except EngineFailed as error:
                rows.append([began, f"`{name}`", f"failed: {error}", "–", "–", "–"])
                tail = "\n".join(read_tail(task.setup.folder / "alone" / f"{name}.log"))
                report.put(f"{name} failed", f"```\n{tail}\n```")
            report.put_table("starts", HEAD, rows, ABOUT)


ABOUT = (
    "`tiers` captures graphs for every k, `plain` for k_max alone. Engines of the parts before may "
    "stand on the same GPU meanwhile, idle; the second start finds compiled code in its cache."
)


def read_costs(log: str) -> list[str]:
    """Seconds of compilation and of capture, GiB of graphs, as the log has them.

    >>> read_costs("x\\nGraph capturing finished in 7 secs, took 0.53 GiB")
    ['–', '7', '0.53']
    >>> read_costs("init engine (profile, warmup model) took 9.00 s (compilation: 4.20 s)")
    ['4.20', '–', '–']
    """
    captured, compiled = CAPTURED.findall(log), COMPILED.search(log)
    return [compiled[1] if compiled else "–", *(captured[-1] if captured else ("–", "–"))]
