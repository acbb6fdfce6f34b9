"""A day of one engine in its black box: size, cost, memory, seeks; and writers that are killed.

    python -m benchmarks.black_box [--kills 100] [--hours 24]

The day is written as fast as it goes: a reading for each second, of an engine with k_max 7, vLLM's
own histogram buckets, traffic that swells and ebbs, two restarts, gaps, an event every 20 s,
cohorts once a minute, and a tuning as well: as often as a recorder asks for one at the most. Each
live window is held against the one from disk. Then writers of another file are killed (SIGKILL) at
random moments, one after the other.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.killed_writer import kill_writers
from tests.support.readings import DOWN, START, STATE, URL
from tests.support.recorded_engine import same_reading
from tests.support.tuned_engine import tuning

from specdeck.console.state.engine_state import Track
from specdeck.console.state.past import fold_past
from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import between
from specdeck.engine.policy.parameters import Catalogue
from specdeck.engine.protocol.cohorts import (
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    no_counts,
)
from specdeck.engine.protocol.tuning import KChange, Tuning

K = 7
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        20.0, 40.0, 80.0, 160.0, 640.0, 2560.0, math.inf)  # fmt: skip
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
       20.0, 40.0, 80.0, math.inf)  # fmt: skip
SEEKS = 200
BUCKETS = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class Engine:
    """Counters that rise with the traffic of a day."""

    chosen: random.Random
    born: float
    life: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, list[float]] = field(default_factory=dict)

    def restart(self, t: float) -> None:
        """Another life."""
        self.born, self.life, self.counts, self.buckets = t, self.life + 1, {}, {}

    def reading(self, n: int, before: Sample | None) -> Reading:
        """The reading of second `n`."""
        load = 0.35 + 0.3 * math.sin(n / 13_750) + 0.3 * self.chosen.random()
        drafts = self._rise("drafts", 400 * load)
        kept = self.chosen.uniform(0.6, 0.8)
        drafted, accepted = [], []
        for position in range(K):
            drafted.append(self._rise(f"drafted {position}", drafts))
            accepted.append(self._rise(f"accepted {position}", drafts * kept ** (position + 1)))
        tokens = drafts + sum(accepted)
        sample = Sample(
            t=START + n + self.chosen.random() / 500, at=1e5 + n + self.chosen.random() / 500,
            model="meta-llama/Llama-3.3-70B-Instruct", process_start=self.born,
            drafts=self.counts["drafts"], drafted=self._total("drafted"),
            accepted=self._total("accepted"),
            accepted_per_position=tuple(self.counts[f"accepted {i}"] for i in range(K)),
            drafted_per_position=tuple(self.counts[f"drafted {i}"] for i in range(K)),
            generated=self._add("generated", tokens), prompt=self._add("prompt", 900 * load),
            preemptions=self._add("preemptions", float(self.chosen.random() < 0.02)),
            prefix_queries=self._add("queries", 900 * load),
            prefix_hits=self._add("hits", 300 * load),
            running=float(round(60 * load)), waiting=float(self.chosen.randrange(3)),
            kv_cache_usage=load * 0.7,
            ttft=self._observe("ttft", TTFT, round(8 * load), 0.3),
            itl=self._observe("itl", ITL, round(300 * load), 0.03),
        )  # fmt: skip
        state = replace(
            STATE, instance=f"life {self.life}", k=K, k_set=K, k_max=K, step=20 * n,
            drafts=int(self.counts["drafts"]), running=round(60 * load),
            drafted_per_position=tuple(map(int, sample.drafted_per_position or ())),
            accepted_per_position=tuple(map(int, sample.accepted_per_position or ())),
            policy_reason=f"goodput: k {K} at {n // 60 % 9} of 60 requests",
        )  # fmt: skip
        window = None if before is None else between(before, sample)
        return Reading(sample.t, URL, sample=sample, window=window, state=state)

    def _rise(self, name: str, mean: float) -> float:
        """By how much a counter rises in this second."""
        by = float(max(0, round(self.chosen.gauss(mean, math.sqrt(mean)))))
        self._add(name, by)
        return by

    def _add(self, name: str, by: float) -> float:
        self.counts[name] = self.counts.get(name, 0.0) + float(round(by))
        return self.counts[name]

    def _total(self, name: str) -> float:
        return sum(self.counts[f"{name} {position}"] for position in range(K))

    def _observe(
        self, name: str, bounds: tuple[float, ...], number: int, median: float
    ) -> Histogram:
        buckets = self.buckets.setdefault(name, [0.0] * len(bounds))
        for _ in range(min(number, 40)):
            value = median * math.exp(self.chosen.gauss(0, 0.7))
            weight = max(1.0, number / 40)
            buckets[next(i for i, bound in enumerate(bounds) if value <= bound)] += round(weight)
        total, counts = 0.0, []
        for one in buckets:
            total += one
            counts.append(total)
        return Histogram(bounds, tuple(counts))


def day(seconds: int) -> Iterator[Reading]:
    """The readings of a day; the same ones each time."""
    engine, before, restarted = Engine(random.Random(15), START - 60.5), None, False
    for n in range(seconds):
        if n % 40_000 == 20_000:
            engine.restart(START + n)
            before, restarted = None, True
        if n % 7_200 in range(3_600, 3_640):
            yield Reading(START + n, URL, error=DOWN)
            before = None
            continue
        found = engine.reading(n, before)
        yield replace(found, restarted=restarted)
        before, restarted = found.sample, False


def cohorts(minute: int, chosen: random.Random, cells: dict[Cohort, CohortCounts]) -> Cohorts:
    """What had finished by a minute: some thirty kinds of requests in each."""
    for _ in range(30):
        kind = Cohort(
            chosen.choice(("16-63", "64-255", "256-1023", "1024-4095", "4096-16383")),
            chosen.choice(("0%", "1-24%", "75-100%")), chosen.choice(("16-63", "64-255")),
            "none", chosen.choice(("none", "none", "json")), chosen.choice(("greedy", "sampled")),
            "no", chosen.choice(("stop", "stop", "length")),
        )  # fmt: skip
        had = cells.get(kind, no_counts(K))
        more = tuple(each + chosen.randrange(5_000) for each in had.drafted_per_position)
        cells[kind] = replace(had, requests=had.requests + 9, drafted_per_position=more)
    made = tuple(CohortCell(kind, counts) for kind, counts in cells.items())
    t = START + 60 * minute
    return Cohorts("life 0", t, made, (), no_counts(K), 0, (0,) * K, (0,) * K)


def turned_tuning(t: float, chosen: random.Random) -> Tuning:
    """A tuning of an engine that has served all sizes of batches: its curve, its last 50 moves."""
    point, told = tuning().curve[0], tuning()
    curve = tuple(
        replace(point, first=first, last=2 * first - 1, k=k, steps=chosen.randrange(9_999),
                requests=first * chosen.uniform(1, 2), seconds_per_step=chosen.uniform(0.01, 0.02),
                tokens_per_second=chosen.uniform(400, 900), ms_per_token=chosen.uniform(5, 20),
                tokens_per_second_low=chosen.uniform(300, 400), age_s=chosen.uniform(0, 900))
        for first in BUCKETS for k in range(K + 1)
    )  # fmt: skip
    moves = tuple(
        KChange(t - 6 * n, n % 8, (n + 1) % 8,
                f"k {n % 8} → {(n + 1) % 8}: positions 4 and 5 had {chosen.uniform(1, 30):.1f} "
                f"% in the last {chosen.randrange(9_000)} drafts", "policy", "policy")
        for n in range(50)
    )  # fmt: skip
    listed = Catalogue().as_list(Catalogue())
    return replace(told, instance="life 0", t=t, parameters=listed, curve=curve, changes=moves)


def memory_mb() -> float:
    """The most that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_day(path: Path, seconds: int) -> None:
    """Writes the day, and says what that costs."""
    box = open_box(path, URL, name="production")
    assert box is not None
    spent, longest, marks = 0.0, 0.0, []
    chosen, cells = random.Random(16), dict[Cohort, CohortCounts]()
    for n, reading in enumerate(day(seconds)):
        begun, wall = time.thread_time(), time.perf_counter()
        box.append(reading)
        longest = max(longest, time.perf_counter() - wall)
        if n % 20 == 0:
            box.add_event(
                BoxEvent(reading.t, "policy", f"goodput: k {n % 8} pays", origin="policy")
            )
        spent += time.thread_time() - begun
        if n % 60 == 0:
            found = cohorts(n // 60, chosen, cells)
            begun = time.thread_time()
            box.add_cohorts(reading.t, found)
            spent += time.thread_time() - begun
            told = turned_tuning(reading.t, chosen)
            begun = time.thread_time()
            box.add_document("tuning", reading.t, told.as_json())
            spent += time.thread_time() - begun
        if n in (seconds // 12, seconds - 1):
            marks.append(memory_mb())
    box.close()
    print(f"| size on disk, MB (budget 50) | {path.stat().st_size / 1e6:.1f} |")
    print(f"| CPU for each second recorded, µs | {spent / seconds * 1e6:.0f} |")
    print(f"| longest commit on the wall clock, ms | {longest * 1e3:.0f} |")
    print(f"| memory after 2 of 24 hours, and at the end, MB | {marks[0]:.1f}, {marks[1]:.1f} |")


def compare_windows(path: Path, seconds: int) -> None:
    """Holds each reading from disk against the live one."""
    compared = differ = windows = 0
    with closing(History(path)) as history:
        for live, found in zip(day(seconds), history.readings(0, 1e11), strict=True):
            compared += 1
            windows += found.window is not None
            differ += not same_reading(live, found)
    print(f"| readings compared with the live ones; windows; that differ | {compared}; "
          f"{windows}; {differ} |")  # fmt: skip


def time_seeks(path: Path, seconds: int) -> None:
    """Times what a screen asks for, each from a file that is opened anew."""
    chosen, end, track = random.Random(17), START + seconds, Track("production", URL)
    asked: dict[str, Callable[[History, float], object]] = {
        "reading at a moment": lambda history, t: history.reading_at(t),
        "all that a screen shows of a moment": lambda history, t: fold_past(history, track, t),
        "window of an hour": lambda history, t: history.window(t - 3_600, t),
        "overview, 24 h in 120 columns": lambda history, t: history.overview(START, end, 120),
        "overview, 24 h in 400 columns": lambda history, t: history.overview(START, end, 400),
        "overview, 2 h in 121 columns": lambda history, t: history.overview(t - 7_200, t, 121),
        "overview, 5 min in 120 columns": lambda history, t: history.overview(t - 300, t, 120),
        "cohorts at a moment": lambda history, t: history.cohorts_at(t),
        "events of an hour": lambda history, t: history.events(t - 3_600, t),
        "next event": lambda history, t: history.next_event(t),
    }
    for name, ask in asked.items():
        walls, cpus = [], []
        for _ in range(SEEKS):
            t = chosen.uniform(START + 100, end)
            with closing(History(path)) as history:
                wall, cpu = time.perf_counter(), time.process_time()
                ask(history, t)
                walls.append((time.perf_counter() - wall) * 1e3)
                cpus.append((time.process_time() - cpu) * 1e3)
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        last = statistics.quantiles(walls, n=100)[-1]
        found = f"{wall:.1f}, {last:.1f}; {cpu:.1f}"
        print(f"| {name}: median and p99, ms (budget 200); CPU, ms | {found} |")


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--hours", type=float, default=24.0)
    options = parser.parse_args()
    seconds = round(options.hours * 3_600)
    with tempfile.TemporaryDirectory() as folder:
        print(f"| {options.hours:g} hours of one engine | |")
        print("| --- | --- |")
        path = Path(folder) / "day.db"
        write_day(path, seconds)
        compare_windows(path, seconds)
        time_seeks(path, seconds)
        committed = kill_writers(Path(folder) / "killed.db", options.kills, random.Random(18))
        print(f"| SIGKILLs; readings committed between; lost; files that did not open | "
              f"{len(committed)}; {sum(committed)}; 0; 0 |")  # fmt: skip


if __name__ == "__main__":
    main()
