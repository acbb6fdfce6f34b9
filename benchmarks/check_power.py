"""What the verdicts of a check find, and how often they are wrong, on engines made of numbers.

    python -m benchmarks.check_power [--runs 200] [--prompts 500] [--state FILE] [--only WORD]

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


def judge(
    engine: NoisyEngine, options: argparse.Namespace, *, prompts: int | None = None, share: int = 1
) -> dict[str, float]:
    """The shares of the words, over all runs or a `share` of them."""
    runs = max(1, options.runs // share)
    words = Counter(check(engine, prompts or options.prompts, seed).word for seed in range(runs))
    return {word: words[word] / runs for word in ("pass", "inconclusive", "fail")}


def settle(engine: NoisyEngine, options: argparse.Namespace) -> dict[str, float]:
    """Where prompts are too few: how often as many as were asked for give a pass or a fail."""
    asked, settled = 0, 0
    runs = max(1, options.runs // 4)
    for seed in range(runs):
        wanted = check(engine, 150, seed).prompts_wanted
        if wanted is not None and wanted <= 4000:
            asked += 1
            settled += check(engine, wanted, 10_000 + seed).word != "inconclusive"
    return {"asked": asked / runs, "settled": settled / asked if asked else 0.0}


def rates(name: str, rate: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How often each of 500 prompts differs, where `rate` of all do."""
    noisy = np.arange(500) < {"every prompt": 500, "40 prompts": 40}[name]
    return np.where(noisy, rate * 500 / noisy.sum(), 0.0)


def change(name: str, before: float, after: float, options: argparse.Namespace, *,
           nights: int = BASELINE, varies: float = 0.0) -> dict[str, float]:  # fmt: skip
    """How soon the canary finds a change."""
    late: list[float] = []
    for seed in range(options.runs // 2):
        found = watch(rates(name, before), rates(name, after), nights=nights, most=LATER,
                      seed=seed, varies=varies)  # fmt: skip
        late.append(LATER + 1 if found.since is None else found.since - nights)
    after_it = [night for night in late if night > 0]
    return {
        "median": float(np.median(after_it)), "p90": float(np.quantile(after_it, 0.9)),
        "not found": sum(night > LATER for night in late) / len(late),
    }  # fmt: skip


def honest(
    name: str, rate: float, options: argparse.Namespace, *, varies: float = 0.0
) -> dict[str, float]:
    """How often the canary is wrong in 200 nights of the same."""
    usual = rates(name, rate)
    runs = max(1, options.runs // 4)
    found = [
        watch(usual, usual, nights=200, most=0, seed=seed, varies=varies) for seed in range(runs)
    ]
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
    for prompts in (1000, 3000):
        engine = NoisyEngine(0.05, 0.03, paired=0.0)
        yield (
            f"honest, repeat 5%, shape 3% by chance, {prompts} prompts",
            partial(judge, engine, prompts=prompts, share=4),
        )
    for floor in FLOORS:
        # Where an arm differs from itself, so much less of what it does otherwise is an excess.
        engine = NoisyEngine(floor, excess=0.015 / (1 - floor))
        yield f"an excess of the threshold, 1.5%, repeat {floor:.0%}", partial(judge, engine)
    for floor in FLOORS:
        engine = NoisyEngine(floor, 0.03, varied=True)
        yield f"honest, repeat {floor:.0%}, shape 3% by chance in each look", partial(judge, engine)
    for floor in FLOORS:
        for by_ask, word in ((False, "always"), (True, "now and then")):
            engine = NoisyEngine(floor, defect=0.02, by_ask=by_ask)
            yield f"2% replaced {word}, repeat {floor:.0%}", partial(judge, engine, share=2)
    for floor in FLOORS:
        yield (
            f"2% more near ties, repeat {floor:.0%}",
            partial(judge, NoisyEngine(floor, excess=0.02)),
        )
    for floor in FLOORS[:3]:
        yield f"as many as asked for, repeat {floor:.0%}", partial(settle, NoisyEngine(floor))
    for name in ("every prompt", "40 prompts"):
        yield f"canary, {name}, 1.2% to 2.1%", partial(change, name, 0.012, 0.021)
        yield (
            f"canary, {name}, 1.2% to 2.1% after 14 nights",
            partial(change, name, 0.012, 0.021, nights=14),
        )
        yield (
            f"canary, {name}, 1.2% to 3.6%, nights vary by 20%",
            partial(change, name, 0.012, 0.036, varies=0.2),
        )
        for rate in (0.012, 0.05) if name == "40 prompts" else (0.012, 0.05, 0.1):
            for varies in (0.0, 0.2, 0.4):
                word = f", nights vary by {varies:.0%}" if varies else ""
                yield (
                    f"canary, {name}, always {rate:.1%}{word}",
                    partial(honest, name, rate, varies=varies),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
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
    runs = options.runs
    print(f"{runs} checks of {options.prompts} prompts a row at a threshold of 1.5 %, {runs // 2}"
          f" of what is replaced and {runs // 4} of other numbers of prompts; of the canary"
          f" {runs // 2} runs with a change and {runs // 4} without. It speaks from night"
          f" {LEAST_NIGHTS} on, changes come after {BASELINE}.\n")  # fmt: skip
    print(table(["engine", "found"], [
        [name, ", ".join(f"{word} {_figure(word, value)}" for word, value in done[name].items())]
        for name, _ in every_row() if name in done
    ]))  # fmt: skip


def _figure(word: str, value: float) -> str:
    whole = word in ("median", "p90", "nights per alarm")
    return f"{value:.0f}" if whole else f"{value:.1%}"


if __name__ == "__main__":
    main()
