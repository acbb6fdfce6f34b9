"""What `fingerprint verify` says of noisy engines that have not changed, and of some that have.

    python -m benchmarks.fingerprint_noise [SIMULATIONS]

Simulated: 16 probes on two arms, whose close calls have margins of up to five times the noise of
one ask, as many of them as make two answers differ so often. *Quiet* is an engine without noise.
Each figure is a pin and one verification of so many engines, a fifth of them where something has
changed: another token from the ninth on, in every answer to so many probes; every log-probability;
or one answer in five, whichever. Exits with 1 where more than one honest engine in a hundred
differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from benchmarks.engines import table
from tests.support.noisy_probes import NoisyProbes, noisy_probes

from specdeck.engine.fingerprint.behaviour import (
    Behaviour,
    explain_incomparable,
    explain_lost_agreement,
    moved_probes,
)

ROWS = (0.0, 0.01, 0.02, 0.05, 0.10, 0.20)
"""How often two answers differ."""
LIMIT = 0.01
HEAD = [
    "answers differ",
    "honest",
    "honest, older pin",
    "1 probe",
    "2 probes",
    "4 probes",
    "log-probabilities by 0.05",
    "one answer in 5 slips",
    "further answers, honest",
    "further answers, 1 probe",
]

Change = Callable[[NoisyProbes], NoisyProbes]


def judge(before: Behaviour, after: Behaviour) -> str:
    """The verdict where no fact has changed."""
    if moved_probes(before, after) or explain_lost_agreement(before, after):
        return "behaviour"
    return "unknown" if any(explain_incomparable(before, after)) else "same"


def replace_tokens(probes: int) -> Change:
    """Another token in all answers to so many probes."""
    return lambda engine: replace(engine, replaced={("serving", n): 8 for n in range(probes)})


def measure(
    repeat: float, times: int, change: Change | None = None, *, is_old: bool = False
) -> tuple[str, float, float]:
    """A cell of the table, how many were not the same, and further answers per verification."""
    random = np.random.default_rng(7)
    verdicts, asked = [], 0
    for _ in range(times):
        engine = noisy_probes(repeat, random)
        if not repeat:
            engine = replace(engine, shakes=0.0)
        pin, _more = engine.look(random)
        if is_old:
            pin = replace(pin, seen={})
        after, further = (engine if change is None else change(engine)).look(random, pin)
        verdicts.append(judge(pin, after))
        asked += further
    changed, unknown = (verdicts.count(one) / times for one in ("behaviour", "unknown"))
    cell = f"{changed:.1%}" + (f", {unknown:.1%} unknown" if unknown else "")
    return cell, changed + unknown, asked / times


def main(times: int) -> int:
    """Prints how often what is called a change."""
    rows, worst, few = [], 0.0, max(1, times // 5)
    for repeat in ROWS:
        honest, share, cost = measure(repeat, times)
        worst = max(worst, share)
        old, _, _ = measure(repeat, times, is_old=True)
        one, _, dear = measure(repeat, few, replace_tokens(1))
        cells = [measure(repeat, few, replace_tokens(n))[0] for n in (2, 4)]
        cells.append(measure(repeat, few, lambda engine: replace(engine, shift=0.05))[0])
        cells.append(measure(repeat, few, lambda engine: replace(engine, slips=0.2))[0])
        name = f"{repeat:.0%}" if repeat else "never: quiet"
        rows.append([name, honest, old, one, *cells, f"{cost:.0f}", f"{dear:.0f}"])
    print(table(HEAD, rows))
    print(f"\n{times} verifications of honest engines a row, {few} of each change.")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
