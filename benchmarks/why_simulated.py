"""What `specdeck why` names first in simulated traffic, and how often it raises a false alarm.

    python -m benchmarks.why_simulated [--honest 500] [--runs 20]

Requests differ from each other as real ones do (each has an acceptance of its own), steps wander
with the machine, and one cause at a time is planted; seeds are fixed. Half of the honest windows
are compared with a baseline. No engine is started: `benchmarks.why` plants on a real one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.engines import table
from tests.support.simulated_traffic import Request, Traffic, usual

from specdeck.engine.why.evidence import Evidence
from specdeck.engine.why.ranking import diagnose

SECONDS = 30.0
Make = Callable[[int], Evidence]


def poor(test: Callable[[Request], bool], by: float = 0.35) -> Make:
    """Some requests are accepted less."""

    def accept(request: Request, t: float) -> float:
        return 0.72 - by if test(request) else 0.72

    return lambda seed: Traffic(seed, rate=8.0, accept=accept).run(SECONDS).evidence()


def decay(seed: int) -> Evidence:
    """Long prompts are accepted less and less."""

    def accept(request: Request, t: float) -> float:
        return 0.72 - (0.6 * t / 90 if request.prompt >= 1024 else 0.0)

    return Traffic(seed, rate=8.0, accept=accept).run(90).evidence()


def latch(seed: int) -> Evidence:
    """Every step takes 6 ms more, 20 of 40 seconds long."""
    return Traffic(seed, slow=lambda t: 0.006 if t > 20 else 0.0).run(40).evidence()


def preempt(seed: int) -> Evidence:
    """Two requests of five are preempted once."""

    def draw(random: Random) -> Request:
        return replace(usual(random), preemptions=int(random.random() < 0.4))

    return Traffic(seed, draw=draw, rate=8.0, prefill_s=6e-5).run(SECONDS).evidence()


def evict(seed: int) -> Evidence:
    """Of prompts that were cached for the most part, few are."""

    def draw(share: float) -> Callable[[Random], Request]:
        return lambda random: replace(
            usual(random), prompt=2000, cached=1800 if random.random() < share else 0
        )

    baseline = Traffic(seed, draw=draw(0.8), rate=8.0).run(SECONDS).as_baseline()
    now = Traffic(seed + 10_000, draw=draw(0.05), rate=8.0).run(SECONDS)
    return now.evidence(baseline)


def fall(seed: int) -> Evidence:
    """All are accepted less than in the baseline."""
    baseline = Traffic(seed, rate=8.0).run(SECONDS).as_baseline()
    now = Traffic(seed + 10_000, rate=8.0, accept=lambda r, t: 0.45).run(SECONDS)
    return now.evidence(baseline)


PLANTS: dict[str, Make] = {
    "prompt_length": poor(lambda r: r.prompt >= 1024),
    "cold_cache": poor(lambda r: r.cached * 4 >= r.prompt, 0.6),
    "structured_output": poor(lambda r: r.structured != "none"),
    "adapter": poor(lambda r: r.adapter != "none"),
    "temperature": poor(lambda r: r.sampled),
    "cohort_drift": decay,
    "every_cohort_fell": fall,
    "draft_of_another_target": lambda seed: Traffic(
        seed, accept=lambda r, t: 0.02
    ).run(SECONDS).evidence(),
    "step_time_latched": latch,
    "preemption": preempt,
    "prefix_cache": evict,
}  # fmt: skip


def look_honestly(seed: int) -> list[str]:
    """What is raised in a window in which nothing is wrong."""
    traffic, baseline = Traffic(seed, rate=8.0), None
    if seed % 2:
        baseline = traffic.run(24, pieces=3).as_baseline()
        traffic.forget()
    return [cause.name for cause in diagnose(traffic.run(24).evidence(baseline)).causes]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--honest", type=int, default=500)
    parser.add_argument("--runs", type=int, default=20)
    options: Any = parser.parse_args()
    rows, right = [], 0
    for name, make in PLANTS.items():
        found = [diagnose(make(20_000 + seed)).causes for seed in range(options.runs)]
        firsts = [causes[0].name if causes else "none" for causes in found]
        right += (hits := firsts.count(name))
        others = Counter(first for first in firsts if first != name)
        beside = Counter(c.name for causes in found for c in causes[1:])
        rows.append([
            f"`{name}`", str(options.runs), str(hits),
            ", ".join(f"{other} {number}" for other, number in others.most_common()) or "–",
            ", ".join(f"{other} {number}" for other, number in beside.most_common(3)) or "–",
        ])  # fmt: skip
    rows.append(["all", str(options.runs * len(PLANTS)), str(right), "", ""])
    alarms = Counter(name for seed in range(options.honest) for name in look_honestly(seed))
    raised = ", ".join(f"{name} {number}" for name, number in alarms.most_common()) or "–"
    rows.append(["nothing", str(options.honest), str(options.honest - sum(alarms.values())),
                 raised, ""])  # fmt: skip
    print(table(["planted", "runs", "right first", "else first", "named beside"], rows))


if __name__ == "__main__":
    main()
