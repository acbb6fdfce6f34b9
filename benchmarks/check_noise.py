"""What the check says of engines whose logits are as noisy as those of a GPU.

    python -m benchmarks.check_noise [--state FILE] [--seconds S] [--only WORD] [--table]

Every row is one check on a real engine, the shipped pair at its own depth, with noise planted in
the target's logits: another each time (*repeat*), one for each number of rows (*shape*), or for
each set of prompts in the step (*batch*). How much noise gives a floor is told from a check with a
lot of it. Rows that are done lie in the state file and are not measured again, so that it can be
run in parts; --seconds begins no further row after so many.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from benchmarks import check_truth
from benchmarks.engines import RunningEngine, start_engine, table
from tests.support import planted_defect
from tests.support.planted_noise import KINDS, Kind, Plan, install_plugin, is_wrong

from specdeck.engine.divergence.prompts import PromptSet, load_prompts

STATE = Path(tempfile.gettempdir()) / "specdeck-check-noise.json"
FLOORS = (0.05, 0.02, 0.20)
SHARE = 0.02
"""Of prompts, where an engine is defective."""
TOKENS = 8
K = 3
PROMPTS = 500
WIDE = 0.02
"""The noise that the one for a floor is told from, in the logit."""
PILOT = "pilot"
"""The check that it is told from: of the repeat kind; of all kinds two draws differ as much."""
_PILOT_PROMPTS = 100


@dataclass(frozen=True, slots=True)
class Row:
    """One check."""

    kind: Kind
    floor: float
    streams: int
    defect: bool
    head: str | None = None

    @property
    def name(self) -> str:
        """What it is called in the table and in the state file."""
        head = "" if self.head is None else f", {self.head} head"
        what = "2% replaced" if self.defect else "honest"
        streams = "1 stream" if self.streams == 1 else f"{self.streams} streams"
        return f"{self.kind} {self.floor:.0%}, {streams}{head}: {what}"


def every_row() -> Iterator[Row]:
    """All rows, those first that tell most.

    A batch of one is always the same, so that there is no such noise in a single stream.
    """
    for streams in (8, 1):
        for floor in FLOORS:
            for kind in KINDS if streams > 1 else ("repeat", "shape"):
                for defect in (False, True):
                    yield Row(kind, floor, streams, defect)
        if streams > 1:
            for kind in KINDS:
                for defect in (False, True):
                    yield Row(kind, FLOORS[0], streams, defect, head="float32")


def find_size(wide: float, rate: float, floor: float) -> float:
    """The noise for a `floor`, from the `rate` that the `wide` one gave.

    Margins near a tie are as frequent at any small distance, and an output stays as it is where
    none of its tokens is turned round.

    >>> round(find_size(0.05, 0.19, 0.1), 3)
    0.025
    """
    rate = min(max(rate, 1 / _PILOT_PROMPTS), 0.95)
    return wide * log(1 - floor) / log(1 - rate)


def make_prompts(folder: Path, count: int) -> PromptSet:
    """Random tokens: a draft is wrong often there."""
    line = check_truth.Line("", 2000, TOKENS, 8)
    return load_prompts(check_truth.make_prompts(folder, line).path, count)


def count_wrong(prompts: PromptSet) -> int:
    """How many of the prompts a defective engine answers wrongly, or tries to."""
    bodies = map(json.loads, Path(prompts.path).read_text().splitlines()[: prompts.count])
    return sum(is_wrong(body["prompt"], SHARE) for body in bodies)


class Bench:
    """An engine with noise that can be turned, and where its rows go."""

    def __init__(self, served: RunningEngine, noise: Path, folder: Path, state: Path) -> None:
        self._served, self._noise, self._folder, self._state = served, noise, folder, state
        self.done = read_state(state)

    def measure(self, row: Row) -> dict[str, Any]:
        """The figures of one row, written down."""
        if PILOT not in self.done:
            self._add(PILOT, self._check(Plan("repeat", WIDE), _PILOT_PROMPTS, 8))
        size = find_size(WIDE, self.done[PILOT]["mismatch_rate"], row.floor)
        plan = Plan(row.kind, size, SHARE if row.defect else 0.0)
        self._add(row.name, self._check(plan, PROMPTS, row.streams))
        return self.done[row.name]

    def _check(self, plan: Plan, prompts: int, streams: int) -> dict[str, Any]:
        found = make_prompts(self._folder, prompts)
        line = check_truth.Line("", prompts, TOKENS, streams, k=K)
        self._noise.write_text(plan.line())
        try:
            data = asyncio.run(check_truth.check(self._served, line, found, self._folder))
        finally:
            self._noise.unlink()
        return {
            **summarize(data),
            "size": plan.size,
            "wrong": count_wrong(found) * (plan.share > 0),
        }

    def _add(self, name: str, found: dict[str, Any]) -> None:
        self.done = {**read_state(self._state), name: found}
        self._state.write_text(json.dumps(self.done, indent=1))
        print(f"{name}: {found}", file=sys.stderr, flush=True)


def read_state(path: Path) -> dict[str, dict[str, Any]]:
    """The rows that are done, and the pilot."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def summarize(data: dict[str, Any]) -> dict[str, Any]:
    """What is kept of the JSON of a check."""
    floor, excess = data["noise_floor"], data["excess"]
    return {
        "prompts": data["prompts"],
        "mismatches": data["mismatches"], "mismatch_rate": data["mismatch_rate"],
        "floors": [floor[name]["rate"] for name in ("repeat", "batch", "shape")],
        "serving_floor": floor["serving"]["rate"], "floor_material": floor["material"],
        "excess": excess["rate"], "upper": excess["upper95"], "p": excess["p"],
        "over_shape": None if excess["over_shape"] is None else excess["over_shape"]["rate"],
        "near_tie": data["near_tie"], "classes": data["classes"],
        "verdict": data["verdict"], "reason": data["reason"], "wanted": data["prompts_wanted"],
        "asks": data["asks"], "drafted": data["arms"]["serving"]["drafted"],
        "patterns": data["patterns"],
        "seconds": round(data["took"]), "at": time.strftime("%m-%d %H:%M", time.gmtime()),
    }  # fmt: skip


@contextmanager
def start_noisy_engine(folder: Path, head: str | None) -> Iterator[tuple[RunningEngine, Path]]:
    """The engine, and the file that its noise is turned with."""
    noise = install_plugin(folder)
    sys.path.insert(0, str(folder))  # the plugin's name is looked up here, its code there
    os.environ["NOISE"] = str(noise)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with start_engine(path=planted_defect.config(folder, head=head)) as served:
        yield served, noise


def describe_pilot(found: dict[str, Any]) -> str:
    """What the check found that the sizes are told from."""
    floors = ", ".join(f"{rate:.0%}" for rate in found["floors"])
    return (
        f"Answers of {TOKENS} tokens to random ones, k = {K}. Sizes are told from {WIDE} in every"
        f" logit: {found['mismatches']} of {found['prompts']} answers differ, floors (repeat,"
        f" batch, shape) {floors}, excess {found['excess']:.2%} (p = {found['p']:.2g}),"
        f" {found['classes']['material']} material, near ties up to"
        f" {found['near_tie']['threshold']:.3f}, {found['seconds']} s, {found['at']} UTC."
    )


def format_rows(done: dict[str, dict[str, Any]]) -> str:
    """The table of what is done."""
    head = ["noise, streams: engine", "prompts", "in the logit", "differ",
            "repeat, batch, shape", "excess, at most (p)", "near tie, material, unreproduced",
            "tie up to", "verdict", "s", "UTC"]  # fmt: skip
    rows = []
    for row in every_row():
        if (d := done.get(row.name)) is None:
            rows.append([row.name, *["–"] * (len(head) - 1)])
            continue
        floors = ", ".join("–" if rate is None else f"{rate:.1%}" for rate in d["floors"])
        classes = d["classes"]
        rows.append([
            row.name + (f" ({d['wrong']} prompts)" if row.defect else ""), str(d["prompts"]),
            f"{d['size']:.4f}", f"{d['mismatch_rate']:.1%}", floors,
            f"{d['excess']:.2%}, {d['upper']:.2%} ({d['p']:.2g})",
            f"{classes['near_tie']}, {classes['material']}, {classes['unreproduced']}",
            f"{d['near_tie']['threshold']:.3f}", d["verdict"], str(d["seconds"]), d["at"],
        ])  # fmt: skip
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true", help="measures nothing")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    for head in (None, "float32"):
        done = read_state(options.state)
        wanted = [
            row
            for row in every_row()
            if row.name not in done and options.only in row.name and row.head == head
        ]
        if not wanted or options.table or time.monotonic() > ends:
            continue
        with tempfile.TemporaryDirectory(prefix="specdeck-noise-") as name:
            folder = Path(name)
            with start_noisy_engine(folder, head) as (served, noise):
                bench = Bench(served, noise, folder, options.state)
                for row in wanted:
                    bench.measure(row)
                    if time.monotonic() > ends:
                        break
    done = read_state(options.state)
    if PILOT in done:
        print(describe_pilot(done[PILOT]), end="\n\n")
    print(format_rows(done))


if __name__ == "__main__":
    main()
