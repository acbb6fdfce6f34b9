"""What it is worth to leave requests without drafts that accept nothing, on the recorded steps.

    python -m benchmarks.request_rests [--steps N] [--seeds N]

What a step takes is the plane of `policy.cost` through the recorded steps of the demo engine, with
the tokens that are verified in place of batch times k: the drafter runs the rows of requests that
rest. Half of the requests accept each drafted token with one chance, half with another, given
the one before. Both sides have the fixed k that is best for them.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev

from specdeck.engine.policy.cost import CostCell, CostModel, fit
from specdeck.engine.policy.fruitless import EVERY, Fruitless

DATA = Path(__file__).parent / "data"
K_MAX = 8
LONG, SHORT = 128, 64
"""Tokens of an answer: of the easy text and of the hard one, as the demo's load asks for."""
MIXES = ((0.95, 0.03), (0.95, 0.3), (0.9, 0.6), (0.95, 0.95))
FEWEST = 30
"""Steps from which a batch size and k count as recorded."""


def recorded_cost() -> CostModel:
    """The plane through the recorded steps of both texts."""
    cells = []
    for text in ("predictable", "hard"):
        seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
        before = -1
        with gzip.open(DATA / f"steps-{text}.jsonl.gz", "rt") as file:
            for line in file:
                record = json.loads(line)
                k, record_s = record["k"], record.get("seconds")
                if record_s is not None and not record.get("prefill") and k == before:
                    seconds[record["requests"], k].append(record_s)
                before = k
        cells += [
            CostCell(batch, k, median(found), len(found))
            for (batch, k), found in seconds.items()
            if len(found) >= FEWEST
        ]
    model = fit(cells)
    assert model is not None
    return model


def play(
    model: CostModel, batch: int, chances: tuple[float, float], k: int, looks: int | None,
    *, steps: int, seed: int,
) -> float:  # fmt: skip
    """Tokens per second of `batch` requests, half of each chance; `looks` None has none rest."""
    random = Random(f"{batch} {chances} {seed}")
    rests = None if looks is None else Fruitless(looks)
    left = {f"{seat} 0": (SHORT if seat % 2 else LONG) for seat in range(batch)}
    tokens, seconds = 0, 0.0
    alone, a_pass = model.seconds(batch, 0), model.seconds(0, 1) - model.seconds(0, 0)
    a_token = model.seconds(1, 1) - model.seconds(1, 0) - a_pass
    for step in range(steps):
        resting = rests.resting if rests else frozenset()
        drafted = [name for name in left if name not in resting]
        accepted = set()
        for name in list(left):
            got, chance = 1, chances[int(name.split()[0]) % 2]
            if name not in resting:
                while got <= k and random.random() < chance:
                    got += 1
            if got > 1:
                accepted.add(name)
            tokens += min(got, left[name])
            left[name] -= got
            if left[name] <= 0:
                seat, number = map(int, name.split())
                del left[name]
                left[f"{seat} {number + 1}"] = SHORT if seat % 2 else LONG
        seconds += alone + k * (a_pass + a_token * len(drafted))
        if rests and k and not step % EVERY:
            rests.look(drafted, accepted)
            rests.keep(left)
    return tokens / seconds


def best(
    model: CostModel, batch: int, chances: tuple[float, float], looks: int | None,
    *, steps: int, seed: int,
) -> float:  # fmt: skip
    """The rate of the best fixed k."""
    return max(
        play(model, batch, chances, k, looks, steps=steps, seed=seed) for k in range(K_MAX + 1)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    model = recorded_cost()
    print("| batch | accepted | rest after 8 rounds | after 16 | after 32 |")
    print("| --- | --- | --- | --- | --- |")
    for batch in (4, 8, 16):
        for mix in MIXES:
            gains = []
            for rounds in (8, 16, 32):
                found = [
                    best(model, batch, mix, rounds // EVERY, steps=options.steps, seed=seed)
                    / best(model, batch, mix, None, steps=options.steps, seed=seed)
                    - 1
                    for seed in range(options.seeds)
                ]
                gains.append(f"{fmean(found) * 100:+.1f} ± {stdev(found) * 100:.1f} %")
            print(f"| {batch} | {mix[0]:g} and {mix[1]:g} | {' | '.join(gains)} |", flush=True)


if __name__ == "__main__":
    main()
