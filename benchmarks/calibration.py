"""Dummy steps of an idle engine beside real steps of the same shape, in one run.

    python -m benchmarks.calibration [--rounds 3] [--seconds 1.5]

Each round goes through all shapes in random order, and makes dummy steps before and after the
real ones. Real steps are those in which as many requests as wanted verify as many drafts, and
nobody reads a prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from benchmarks.engines import RunningEngine, start_engine, table

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.calibration import StepShape
from specdeck.engine.protocol.messages import Change

BATCHES, KS = (1, 4, 16), (0, 3, 8)
DUMMIES = 5
TOKENS = 220
"""Of an answer: so many that few steps read prompts."""


@dataclass
class Cell:
    """What was measured of one shape, seconds."""

    dummy: list[float] = field(default_factory=list)
    real: list[float] = field(default_factory=list)

    @property
    def medians(self) -> tuple[float, float]:
        """Of dummy and of real steps."""
        return statistics.median(self.dummy), statistics.median(self.real)


def is_wanted(step: Step, batch: int, k: int) -> bool:
    """Whether a real step has the shape."""
    return (
        step.requests == batch
        and step.k == k
        and step.drafted == batch * k
        and step.tokens == batch * (1 + k)
    )


async def make_dummies(client: EngineClient, cell: Cell, batch: int, k: int) -> None:
    """The first of them are left out: the caches of the processor are cold."""
    made = await client.calibrate(StepShape(batch, k, DUMMIES))
    cell.dummy += made.seconds[1:]


async def make_steps(
    engine: RunningEngine, client: EngineClient, cell: Cell, batch: int, k: int, seconds: float
) -> None:
    """As many requests as the batch is to have, for so long."""
    since, ends = (await client.state()).step, time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=engine.url, timeout=300, trust_env=False) as http:

        async def stream(number: int) -> None:
            answers = 0
            while time.monotonic() < ends or not answers:
                answers += 1
                body = {"model": "demo", "prompt": f"Line {number} {answers}: the list of",
                        "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}  # fmt: skip
                (await http.post("/v1/completions", json=body)).raise_for_status()

        await asyncio.gather(*map(stream, range(batch)))
    steps = await client.steps(since)
    cell.real += [step.seconds for step in steps if step.seconds and is_wanted(step, batch, k)]
    await asyncio.sleep(0.3)  # nothing may be left of the requests


async def measure(
    engine: RunningEngine, rounds: int, seconds: float
) -> dict[tuple[int, int], Cell]:
    """Every shape in every round."""
    cells = {(batch, k): Cell() for batch in BATCHES for k in KS}
    client = engine.client()
    try:
        await make_steps(engine, client, Cell(), 4, max(KS), seconds)  # the first ones compile
        for _ in range(rounds):
            order = list(cells)
            random.shuffle(order)
            for batch, k in order:
                await client.put(Change(k=k, who="benchmark"))
                cell = cells[batch, k]
                await make_dummies(client, cell, batch, k)
                await make_steps(engine, client, cell, batch, k, seconds)
                await make_dummies(client, cell, batch, k)
    finally:
        await client.close()
    return cells


def errors_of_others(cells: Mapping[tuple[int, int], Cell]) -> list[float]:
    """How far the other k's of a batch size are off once one k's real steps are known."""
    medians = {shape: cell.medians for shape, cell in cells.items() if cell.real}
    found = []
    for (batch, k), (dummy, real) in medians.items():
        for (size, other), (others_dummy, others_real) in medians.items():
            if size == batch and other != k:
                found.append((others_dummy + real - dummy) / others_real - 1)
    return found


def main() -> None:
    """Prints both, and what is left of the difference."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    asked = parser.parse_args()
    with start_engine() as engine:
        cells = asyncio.run(measure(engine, asked.rounds, asked.seconds))
    rows, ratios = [], []
    for (batch, k), cell in cells.items():
        if not cell.real:
            rows.append([str(batch), str(k), "–", "–", "0", "–"])
            continue
        dummy, real = cell.medians
        ratios.append(dummy / real)
        rows.append([str(batch), str(k), f"{dummy * 1e3:.1f}", f"{real * 1e3:.1f}",
                     str(len(cell.real)), f"{dummy / real:.2f}"])  # fmt: skip
    print(table(["requests", "k", "dummy, ms", "real, ms", "real steps", "dummy / real"], rows))
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    print(
        f"\nDummy steps take {middle:.2f} of real ones (the median shape; {low:.2f} to {high:.2f})."
    )
    off = [abs(error) for error in errors_of_others(cells)]
    print(
        "With what real steps take longer at one k added at the other k's of the batch size, these "
        f"are off by {statistics.median(off):.0%} (median), {max(off):.0%} at most."
    )


if __name__ == "__main__":
    main()
