"""What the verdicts of a check find, and how often they are wrong, on engines made of numbers.

    python -m benchmarks.check_power [--runs 300] [--prompts 500] [--state FILE] [--only WORD]

Every row goes through the functions that decide a check: the patterns of equal answers, the excess
over the floors, the classes, the verdict and the canary. Rows that are done lie in the state file,
so that it can be run in parts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.engines import table
from tests.support.noisy_arms import NoisyEngine, check, watch

from specdeck.engine.divergence.canary import LEAST_NIGHTS

STATE = Path(tempfile.gettempdir()) / "specdeck-check-power.json"
FLOORS = (0.0, 0.01, 0.05, 0.10, 0.20)
SHAPES = (0.0, 0.03, 0.06)
BASELINE = 30
"""Nights before a change, and a little more than a month after."""
LATER = 40

Row = Callable[[argparse.Namespace], dict[str, float]]


def judge(engine: NoisyEngine, options: argparse.Namespace) -> dict[str, float]:
    """The shares of the words, over all runs."""
    words = Counter(check(engine, options.prompts, seed).word for seed in range(options.runs))
    return {word: words[word] / options.runs for word in ("pass", "inconclusive", "fail")}


def settle(engine: NoisyEngine, options: argparse.Namespace) -> dict[str, float]:
    """Where prompts are too few: how often as many as were asked for give a pass or a fail."""
    asked, settled = 0, 0
    for seed in range(options.runs):
        wanted = check(engine, 150, seed).prompts_wanted
        if wanted is not None and wanted <= 4000:
            asked += 1
            settled += check(engine, wanted, 10_000 + seed).word != "inconclusive"
    return {"asked": asked / options.runs, "settled": settled / asked if asked else 0.0}


def rates(name: str, rate: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How often each of 500 prompts differs, where `rate` of all do."""
    noisy = np.arange(500) < {"every prompt": 500, "40 prompts": 40}[name]
    return np.where(noisy, rate * 500 / noisy.sum(), 0.0)


def change(name: str, before: float, after: float, options: argparse.Namespace) -> dict[str, float]:
    """How soon the canary finds a change."""
    nights: list[float] = []
    for seed in range(options.runs):
        found = watch(rates(name, before), rates(name, after), nights=BASELINE, most=LATER,
                      seed=seed)  # fmt: skip
        nights.append(LATER + 1 if found.since is None else found.since - BASELINE)
    late = [night for night in nights if night > 0]
    return {
        "median": float(np.median(late)), "p90": float(np.quantile(late, 0.9)),
        "not found": sum(night > LATER for night in nights) / options.runs,
    }  # fmt: skip


def honest(name: str, rate: float, options: argparse.Namespace) -> dict[str, float]:
    """How often the canary is wrong in 200 nights of the same."""
    usual = rates(name, rate)
    runs = max(1, options.runs // 2)
    found = [watch(usual, usual, nights=200, most=0, seed=seed) for seed in range(runs)]
    alarms = sum(one.since is not None for one in found)
    nights = sum(one.nights for one in found)
    return {"alarms in 200 nights": alarms / runs, "nights per alarm": nights / max(1, alarms)}


def every_row() -> Iterator[tuple[str, Row]]:
    """All rows, by name."""
    for floor in FLOORS:
        for shape in SHAPES:
            engine = NoisyEngine(floor, shape)
            yield f"honest, repeat {floor:.0%}, shape {shape:.0%}", partial(judge, engine)
    for floor in FLOORS:
        engine = NoisyEngine(floor, 0.03, paired=0.0)
        yield f"honest, repeat {floor:.0%}, shape 3% by chance", partial(judge, engine)
    for floor in FLOORS:
        for by_ask, word in ((False, "always"), (True, "now and then")):
            engine = NoisyEngine(floor, defect=0.02, by_ask=by_ask)
            yield f"2% replaced {word}, repeat {floor:.0%}", partial(judge, engine)
    for floor in FLOORS:
        yield (
            f"2% more near ties, repeat {floor:.0%}",
            partial(judge, NoisyEngine(floor, excess=0.02)),
        )
    for floor in FLOORS[:3]:
        yield f"as many as asked for, repeat {floor:.0%}", partial(settle, NoisyEngine(floor))
    for name in ("every prompt", "40 prompts"):
        yield f"canary, {name}, 1.2% to 2.1%", partial(change, name, 0.012, 0.021)
        for rate in (0.012, 0.05):
            yield f"canary, {name}, always {rate:.1%}", partial(honest, name, rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    done: dict[str, dict[str, float]] = {}
    if options.state.exists():
        done = json.loads(options.state.read_text())
    for name, row in every_row():
        if name not in done and options.only in name:
            done[name] = row(options)
            options.state.write_text(json.dumps(done, indent=1))
            print(f"{name}: {done[name]}", file=sys.stderr, flush=True)
    print(f"{options.runs} runs of {options.prompts} prompts; the canary speaks from night"
          f" {LEAST_NIGHTS} on, changes come after {BASELINE}\n")  # fmt: skip
    print(table(["engine", "found"], [
        [name, ", ".join(f"{word} {_figure(word, value)}" for word, value in done[name].items())]
        for name, _ in every_row() if name in done
    ]))  # fmt: skip


def _figure(word: str, value: float) -> str:
    whole = word in ("median", "p90", "nights per alarm")
    return f"{value:.0f}" if whole else f"{value:.1%}"


if __name__ == "__main__":
    main()
