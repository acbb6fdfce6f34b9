"""Greedy outputs under auto against target-only's, while everything is changed all the time.

    python -m benchmarks.auto_soak [--seconds 600] [--streams 8] [--seed 1]

Streams of greedy completions run without a break while policies, k, mode, fallback, the
breaker, parameters and judged trials change at random, about twice a second. Every output
is compared with the one that target-only gave before. Exit code 1 on any mismatch, near ties
aside, or failed request.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
from benchmarks.engines import RunningEngine, start_engine, table
from benchmarks.greedy import GreedyReference, complete, prompts, take_references

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.errors import Conflict
from specdeck.engine.protocol.messages import Change

WHO = "soak"


@dataclass(slots=True)
class Tally:
    """What happened."""

    outputs: int = 0
    near_ties: int = 0
    """Others where target-only itself is all but undecided."""
    mismatches: int = 0
    failed: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    trials: Counter[str] = field(default_factory=Counter)
    ks: set[int] = field(default_factory=set)


async def stream(
    http: httpx.AsyncClient,
    asked: list[list[int]],
    references: list[GreedyReference],
    tally: Tally,
    rng: random.Random,
    until: float,
) -> None:
    """One completion after the other, one in eight of them under the exact name."""
    while time.monotonic() < until:
        number = rng.randrange(len(asked))
        model = "demo-exact" if rng.random() < 0.125 else "demo"
        try:
            found = await complete(http, asked[number], model)
        except httpx.HTTPError as error:
            tally.failed += 1
            print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        tally.outputs += 1
        reference = references[number]
        likeness = reference.compare(found)
        tally.near_ties += likeness == "near tie"
        if likeness == "altered":
            tally.mismatches += 1
            pairs = zip(found, reference.tokens, strict=False)
            at = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
            print(f"mismatch: prompt {number}, token {at}, {model}", file=sys.stderr)


def draw_change(rng: random.Random, k_max: int) -> tuple[str, Change]:
    """Something to change, and its name."""
    floor = {"breaker.acceptance_floor": rng.choice([0.1, 0.4]), "goodput.explore": 0.05}
    kinds: list[tuple[str, Change]] = [
        ("goodput", Change(policy="goodput", who=WHO)),
        ("goodput", Change(policy="goodput", who=WHO)),
        ("threshold", Change(policy="threshold", who=WHO)),
        ("k", Change(k=rng.randrange(k_max + 1), who=WHO)),
        ("target-only", Change(mode="target-only", fallback=rng.choice(["warm", "cold"]), who=WHO)),
        ("speculate", Change(mode="speculate", who=WHO)),
        ("speculate", Change(mode="speculate", who=WHO)),
        ("breaker open", Change(breaker="open", who=WHO)),
        ("breaker trip", Change(breaker="open", probe=True, who=WHO)),
        ("breaker closed", Change(breaker="closed", who=WHO)),
        ("breaker closed", Change(breaker="closed", who=WHO)),
        ("parameters", Change(parameters=floor, who=WHO)),
        ("lease", Change(k=rng.randrange(k_max + 1), lease_s=rng.uniform(0.5, 3), who=WHO)),
        ("trial", Change(k=rng.randrange(k_max + 1), judge=True, trial_s=1.5, lease_s=8, who=WHO)),
        ("trial", Change(policy="goodput", judge=True, trial_s=1.5, lease_s=2, who=WHO)),
    ]
    return rng.choice(kinds)


async def meddle(
    client: EngineClient, tally: Tally, rng: random.Random, k_max: int, until: float
) -> None:
    """Changes something about twice a second; a trial is left alone for a while."""
    number = 0
    while time.monotonic() < until:
        name, change = draw_change(rng, k_max)
        try:
            await client.put(change)
            tally.changes[name] += 1
        except Conflict:
            tally.changes["refused: a trial is under way"] += 1
        await asyncio.sleep(5 if name == "trial" else rng.uniform(0.1, 0.9))
        tuning = await client.tuning()
        tally.ks |= {k for _, _, k in tuning.k}
        trial = tuning.trial
        if trial is not None and trial.over and trial.number > number:
            number = trial.number
            tally.trials[f"{trial.state}: {trial.verdict or trial.reason}"] += 1


async def soak(engine: RunningEngine, seconds: float, streams: int, seed: int) -> Tally:
    """The tally of `seconds` of it."""
    tally, asked = Tally(), prompts(seed)
    client = engine.client()
    async with httpx.AsyncClient(base_url=engine.url, timeout=120, trust_env=False) as http:
        await client.put(Change(mode="target-only", who=WHO))
        references = await take_references(http, asked)
        await client.put(Change(mode="speculate", policy="goodput", who=WHO))
        k_max = (await client.state()).k_max
        until = time.monotonic() + seconds
        work: list[Any] = [
            stream(http, asked, references, tally, random.Random(seed * 1000 + n), until)
            for n in range(streams)
        ]
        await asyncio.gather(*work, meddle(client, tally, random.Random(seed), k_max, until))
        state = await client.state()
    await client.close()
    print(f"{state.step} steps, {state.drafts} drafts, exact requests {state.exact_requests}\n")
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the engine ends with us
    with start_engine() as engine:
        tally = asyncio.run(soak(engine, options.seconds, options.streams, options.seed))
    rows = [
        ["outputs compared", str(tally.outputs)],
        ["others, at a near tie of target-only", str(tally.near_ties)],
        ["mismatches", str(tally.mismatches)],
        ["failed requests", str(tally.failed)],
        ["k's seen", " ".join(map(str, sorted(tally.ks)))],
        *([f"change: {name}", str(count)] for name, count in sorted(tally.changes.items())),
        *([f"trial {name}", str(count)] for name, count in sorted(tally.trials.items())),
    ]
    print(table([f"{options.seconds:.0f} s, {options.streams} streams", "count"], rows))
    sys.exit(1 if tally.mismatches or tally.failed or not tally.outputs else 0)


if __name__ == "__main__":
    main()
