"""An engine that collapsed while it was recorded: readings, changes, cohorts, and its black box."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.protocol.cohorts import (
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    no_counts,
)
from specdeck.engine.protocol.messages import LastChange
from tests.support.readings import START, STATE
from tests.support.recorded_engine import BOUNDS, look_at, record

SECONDS = 600
FALL = 300
"""When acceptance falls, in seconds after START."""
K = 4


def collapsed_readings(
    *,
    seconds: int = SECONDS,
    fall: int = FALL,
    down: int = 20,
    reason: str | None = None,
    changed: bool = True,
    slower: int | None = None,
    hangs: int = 0,
) -> list[Reading]:
    """Acceptance falls from 0.7 to 0.2, after a change where it is `changed`, and the engine is
    down in the end. From `slower` seconds on it makes half as many steps; its last `hangs` readings
    before have counters, and no word of the plugin."""
    chance = random.Random(1)
    drafts = drafted = accepted = generated = 0.0
    looks: list[tuple[Sample | None, object]] = []
    for n in range(seconds):
        share = (0.7 if n < fall else 0.2) + chance.uniform(-0.05, 0.05)
        now = chance.randint(8, 12) // (1 if slower is None or n < slower else 2)
        drafts, drafted = drafts + now, drafted + K * now
        taken = round(K * now * share)
        accepted, generated = accepted + taken, generated + now + taken
        sample = Sample(
            t=START + n, at=float(n), model="demo", process_start=START, drafts=drafts,
            drafted=drafted, accepted=accepted, generated=generated, prompt=40.0 * n,
            preemptions=0.0, running=4.0, waiting=1.0, kv_cache_usage=0.2,
            ttft=Histogram(BOUNDS, (1.0 * n, 2.0 * n, 3.0 * n, 3.0 * n)),
            itl=Histogram(BOUNDS, (10.0 * n, 30.0 * n, 40.0 * n, 40.0 * n)),
        )  # fmt: skip
        state = replace(STATE, step=round(drafts), k_max=K)
        if changed and n >= fall - 5:
            change = LastChange(
                START + fall - 5, "mira", reason, {"fallback": "warm"}, {"fallback": "cold"},
                "operator",
            )  # fmt: skip
            state = replace(state, fallback="cold", last_change=change)
        looks.append((sample, state if n < seconds - hangs else None))
    looks += [(None, None)] * down
    return look_at(looks)  # type: ignore[arg-type]


def cohorts_at(n: int, *, fall: int = FALL) -> Cohorts:
    """Half of the requests are greedy; those that are sampled accept nothing any more."""

    def cell(temperature: str, first: float, later: float) -> CohortCell:
        words = ("64-255", "0%", "64-255", "none", "none", temperature, "no", "length")
        requests, was = 2 * n, min(n, fall)
        drafted = tuple(20 * n for _ in range(K))
        accepted = tuple(int(20 * (was * first + (n - was) * later)) for _ in range(K))
        counts = CohortCounts(requests, 90 * n, 40 * n, 0, 20 * n, drafted, accepted)
        return CohortCell(Cohort(*words), counts)

    cells = (cell("greedy", 0.7, 0.7), cell("sampled", 0.6, 0.05))
    drafted = tuple(map(sum, zip(*(one.counts.drafted_per_position for one in cells), strict=True)))
    accepted = tuple(
        map(sum, zip(*(one.counts.accepted_per_position for one in cells), strict=True))
    )
    return Cohorts(
        STATE.instance, START + n, cells, (), no_counts(K),
        sum(one.counts.drafts for one in cells), drafted, accepted,
    )  # fmt: skip


def record_collapse(path: Path, *, reason: str | None = None, event: str = "fallback cold") -> None:
    """Its black box."""
    with closing(record(path, collapsed_readings(reason=reason), rows=60)) as box:
        for n in range(0, SECONDS, 60):
            box.add_cohorts(START + n, cohorts_at(n))
        box.add_event(
            BoxEvent(START + FALL - 5, "change", event, "accent", "cold", who="mira", reason=reason)
        )
        box.add_event(BoxEvent(START + SECONDS, "down", "no answer", "bad", "down"))
        box.add_document("tuning", START + 1, {"policy": "fixed", "reason": reason})


def poisoned_cohorts_at(n: int, *, fall: int = FALL) -> Cohorts:
    """Prompts of 64 tokens or more, cached or not, have no draft accepted any more."""

    def cell(prompt: str, cached: str, each: float, first: float, later: float) -> CohortCell:
        requests, before = int(each * n), int(each * min(n, fall))
        drafted = (20 * requests,) * K
        accepted = (int(20 * (before * first + (requests - before) * later)),) * K
        words = (prompt, cached, "64-255", "none", "none", "greedy", "no", "length")
        counts = CohortCounts(
            requests, 90 * requests, 80 * requests, 0, 20 * requests, drafted, accepted
        )
        return CohortCell(Cohort(*words), counts)

    cells = (
        cell("16-63", "0%", 3, 0.66, 0.68), cell("16-63", "50-74%", 1, 0.66, 0.67),
        cell("64-255", "0%", 1, 0.74, 0.04), cell("64-255", "50-74%", 1, 0.72, 0.05),
        cell("256-1023", "0%", 0.01, 0.8, 0.02),
    )  # fmt: skip
    counts = [one.counts for one in cells]
    return Cohorts(
        STATE.instance, START + n, cells, (), no_counts(K), sum(one.drafts for one in counts),
        tuple(map(sum, zip(*(one.drafted_per_position for one in counts), strict=True))),
        tuple(map(sum, zip(*(one.accepted_per_position for one in counts), strict=True))),
    )  # fmt: skip


def record_poison(path: Path, *, slower: int | None = None) -> None:
    """The black box of an engine where nothing was changed, and drafts of long prompts failed."""
    readings = collapsed_readings(changed=False, slower=slower, hangs=3)
    with closing(record(path, readings, rows=60)) as box:
        for n in range(0, SECONDS, 60):
            box.add_cohorts(START + n, poisoned_cohorts_at(n))
        box.add_event(BoxEvent(START + SECONDS, "down", "no answer", "bad", "down"))
