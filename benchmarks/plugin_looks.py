"""What a look at the engine costs the engine core's thread, when everything has been measured.

    python -m benchmarks.plugin_looks [--looks 50]

State, tuning and facts are looks of any client; a page of steps is told to each API server once.
The ring of steps is full, and every batch size and k has been timed. Looks of each kind begin
50 ms apart at least (tuning 200 ms), however many ask.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.engines import table
from benchmarks.plugin_step_cost import K_MAX, Engine
from tests.support.drafting_scheduler import DraftingScheduler
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.fingerprint import Identity
from specdeck.engine.plugin.looks import PAGE
from specdeck.engine.plugin.recorder import Recorder
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import BOUNDS, first

BLOCKS = 50
BLOCK_STEPS = 16
STEP_S = 0.0001


class WatchedEngine(Engine):
    """Remembers steps, as the engine behind vLLM's scheduler does."""

    def __init__(self, scheduler: DraftingScheduler) -> None:
        super().__init__(scheduler)
        self._scheduler = scheduler
        self.listener: Any = None

    def watch(self, listener: Any) -> None:
        self.listener = listener
        self.recorder = Recorder(self._scheduler, K_MAX, listener)

    def requests(self) -> tuple[int, int]:
        return 8, 0

    def steps(self, since: int, most: int) -> list[Step]:
        return self.recorder.after(since, most)


def step(number: int, requests: int, k: int) -> Step:
    """A settled step that only decodes."""
    accepted = (requests,) * (k // 2) + (0,) * (K_MAX - k // 2)
    committed = requests + sum(accepted)
    return Step(
        number, number * STEP_S, requests, requests * (1 + k), k, requests, requests * k,
        sum(accepted), 0.02 + 0.001 * (number % 7), committed, accepted, 0, k, True,
    )  # fmt: skip


def measure_engine() -> tuple[Control, WatchedEngine, int]:
    """An engine with every bucket and k timed, and the number of its last step."""
    engine, number = WatchedEngine(DraftingScheduler(K_MAX, SpecDecodingStats.new)), 0
    control = Control(
        engine, Identity({}), instance="bench", orchestration={},
        clock=lambda: number * STEP_S, wall=time.time,
    )  # fmt: skip
    for bucket in range(len(BOUNDS)):
        for k in range(K_MAX + 1):
            for _ in range(BLOCKS * BLOCK_STEPS):
                number += 1
                found = step(number, first(bucket), k)
                engine.recorder.ring.append(found)
                engine.listener.after_step(found)
    return control, engine, number


def cost(look: Callable[[], object], looks: int) -> tuple[float, int]:
    """Median milliseconds of CPU of a look, its JSON included, and the bytes of that."""
    took, size = [], 0
    for _ in range(looks):
        began = time.thread_time()
        size = len(json.dumps(look()))
        took.append((time.thread_time() - began) * 1e3)
    return statistics.median(took), size


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--looks", type=int, default=50)
    looks = parser.parse_args().looks
    control, engine, last = measure_engine()
    kinds: dict[str, Callable[[], object]] = {
        name: partial(control.answer, name, None) for name in ("state", "tuning", "facts")
    }
    kinds[f"{PAGE} steps"] = lambda: control.answer("steps", 0)
    whole = len(engine.recorder.ring)
    kinds[f"{whole} steps at once"] = lambda: [each.as_json() for each in engine.recorder.ring]
    rows = []
    for name, look in kinds.items():
        median, size = cost(look, looks)
        rows.append([name, f"{median:.2f}", str(size)])
    points = len(control.tuning().curve)
    print(table(["look", "CPU, ms", "bytes"], rows))
    print(f"\n{last} steps, {points} points of the curve.")


if __name__ == "__main__":
    main()
