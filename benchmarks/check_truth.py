"""What the check says of engines whose truth is known: honest ones, and one with a defect.

    python -m benchmarks.check_truth [--state FILE] [--seconds S] [--only WORD]

Each line of the table is one check on a real engine, the shipped pair at its own depth. Lines
that are done lie in the state file and are not measured again, so that it can be run in parts;
--seconds begins no further line after so many.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import log
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.engines import RunningEngine, start_engine, table
from tests.support import planted_defect
from tests.support.checks import finish_check

from specdeck.engine.divergence.prompts import PromptSet, load_prompts
from specdeck.engine.operations.check import ArmPair, CheckedEngine, CheckOptions
from specdeck.engine.protocol.messages import Change
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store

STATE = Path(tempfile.gettempdir()) / "specdeck-check-truth.json"
K_MAX = 6
SHARE_OF_OUTPUTS = 0.02
_WIDE = 0.05
"""The share of drafts accepted unchecked from which the one for 2 % of outputs is told."""


@dataclass(frozen=True, slots=True)
class Line:
    """One check."""

    name: str
    prompts: int
    tokens: int
    streams: int
    k: int = K_MAX
    float32: bool = False
    defect: bool = False


LINES = (
    *(Line(f"honest, k={k}", 200, 128, 8, k=k) for k in range(1, K_MAX + 1)),
    Line("honest, 2,000 prompts", 2000, 32, 16),
    Line("a defect in about 2 % of outputs", 500, 48, 16, defect=True),
    Line("float32 as the reference", 500, 32, 16, float32=True),
    Line("honest, one stream", 200, 128, 1, k=3),
)


class Truths:
    """The lines that are done, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, line: Line, found: dict[str, Any]) -> None:
        """Writes a line down."""
        self.done[line.name] = found
        self._path.write_text(json.dumps(self.done, indent=1))


def make_prompts(folder: Path, line: Line) -> PromptSet:
    """Openings of code, or, where a draft is to be wrong often, random tokens."""
    if line.prompts <= 500 and not line.defect:
        return load_prompts("code", line.prompts)
    random = Random(11)
    path = folder / f"{line.prompts}.jsonl"
    bodies = ({"prompt": [random.randrange(300, 1900) for _ in range(24)]} for _ in range(2000))
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return load_prompts(path, line.prompts)


async def check(
    served: RunningEngine,
    line: Line,
    found: PromptSet,
    folder: Path,
    reference: RunningEngine | None = None,
) -> dict[str, Any]:
    """The JSON of one check, with the seconds that it took and how its answers were alike."""
    control, other = served.client(), None if reference is None else reference.client()
    wanted = CheckOptions(max_tokens=line.tokens, streams=line.streams, fresh=True)
    second = None if other is None else CheckedEngine(other)
    began = time.monotonic()
    try:
        await control.put(Change(k=line.k))
        with Store(folder / "store.sqlite") as store:
            async with ArmPair(CheckedEngine(control), second, wanted) as pair:
                result = await finish_check(pair, found, Checks(store))
    finally:
        await control.close()
        if other is not None:
            await other.close()
    patterns = dict(result.outcome.totals.patterns)
    return {**result.as_json(), "took": time.monotonic() - began, "patterns": patterns}


def defect_share(wide: dict[str, Any]) -> float:
    """The share of drafts that makes 2 % of outputs differ, from a check with `_WIDE`.

    An output stays as it is when none of its wrong drafts is let through.
    """
    rate = min(wide["mismatch_rate"], 0.99)
    return 1 - (1 - _WIDE) ** (log(1 - SHARE_OF_OUTPUTS) / log(1 - rate)) if rate else _WIDE


def measure(
    line: Line, served: RunningEngine, folder: Path, fault: Path, reference: RunningEngine | None
) -> dict[str, Any]:
    """One line's figures."""
    found, share = make_prompts(folder, line), None
    if line.defect:
        fault.write_text(f"greedy {_WIDE}")
        wide = asyncio.run(check(served, line, load_prompts(found.path, 60), folder))
        share = defect_share(wide)
        fault.write_text(f"greedy {share}")
    try:
        data = asyncio.run(check(served, line, found, folder, reference))
    finally:
        fault.unlink(missing_ok=True)
    confirmed = [c for c in data["cases"] if c["recheck"] and c["recheck"]["confirmed"]]
    return {
        "prompts": data["prompts"], "tokens": line.tokens, "streams": line.streams,
        "mismatches": data["mismatches"],
        "floor": [data["noise_floor"]["rate"], data["noise_floor"]["serving"]["rate"]],
        "classes": data["classes"], "confirmed": len(confirmed), "verdict": data["verdict"],
        "drafted": data["arms"]["serving"]["drafted"], "share": share,
        "seconds": round(data["took"]), "at": time.strftime("%m-%d %H:%M", time.gmtime()),
    }  # fmt: skip


@contextmanager
def start_engines(
    folder: Path, wanted: list[Line]
) -> Iterator[tuple[RunningEngine, Path, RunningEngine | None]]:
    """The engine with the switched-off defect, and one in float32 where a line wants it."""
    fault = planted_defect.plugin(folder)
    sys.path.insert(0, str(folder))  # the plugin's name is looked up here, its code there
    os.environ["PLANTED"] = str(fault)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with ExitStack() as stack:
        served = stack.enter_context(start_engine(path=planted_defect.config(folder)))
        other = None
        if any(line.float32 for line in wanted):
            path = planted_defect.config(folder, dtype="float32", speculative=False)
            other = stack.enter_context(start_engine(path=path))
        yield served, fault, other


def format_lines(done: dict[str, dict[str, Any]]) -> str:
    """The table of what is done."""
    head = ["engine", "prompts × tokens, streams", "differ", "A/A reference, serving",
            "near tie, material (confirmed)", "drafted", "verdict", "s", "UTC"]  # fmt: skip
    rows = []
    for line in LINES:
        if (d := done.get(line.name)) is None:
            rows.append([line.name, f"{line.prompts} × {line.tokens}, {line.streams}", *["–"] * 7])
            continue
        share = "" if d["share"] is None else f" ({d['share']:.2%} of drafts unchecked)"
        classes = d["classes"]
        rows.append([
            line.name + share, f"{d['prompts']} × {d['tokens']}, {d['streams']}",
            str(d["mismatches"]), " · ".join(f"{rate:.2%}" for rate in d["floor"]),
            f"{classes['near_tie']}, {classes['material']} ({d['confirmed']})",
            str(d["drafted"]), d["verdict"], str(d["seconds"]), d["at"],
        ])  # fmt: skip
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    truths, ends = Truths(options.state), time.monotonic() + options.seconds
    wanted = [one for one in LINES if one.name not in truths.done and options.only in one.name]
    if wanted:
        with tempfile.TemporaryDirectory(prefix="specdeck-truth-") as name:
            folder = Path(name)
            with start_engines(folder, wanted) as (served, fault, other):
                for line in wanted:
                    if time.monotonic() > ends:
                        break
                    reference = other if line.float32 else None
                    found = measure(line, served, folder, fault, reference)
                    truths.add(line, found)
                    print(f"{line.name}: {found}", file=sys.stderr, flush=True)
    print(format_lines(truths.done))


if __name__ == "__main__":
    main()
