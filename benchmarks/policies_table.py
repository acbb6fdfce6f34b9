"""The visits of `benchmarks.policies`, and the tables they come to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean

from specdeck.engine.demo.profiles import PROFILES
from specdeck.engine.policy.intervals import mean


@dataclass(frozen=True, slots=True)
class Visit:
    """One arm on one cell in one round."""

    profile: str
    streams: int
    """0 where the profile says."""
    round: int
    arm: str
    seconds: float
    tokens: int
    steps: int
    k_seconds: dict[str, float]
    """Seconds of steps by the k that was in force."""
    phases: list[tuple[int, float]]
    """Tokens and seconds of each phase of the profile."""

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def cell(self) -> tuple[str, int]:
        return self.profile, self.streams


Rounds = dict[str, dict[int, float]]
"""Tokens per second by arm and round."""


def read(raw: Path) -> list[Visit]:
    """The visits of a raw file; none of one that is not there."""
    if not raw.exists():
        return []
    return [Visit(**json.loads(line)) for line in raw.read_text().splitlines()]


def report(visits: Iterable[Visit], *, missing: int) -> str:
    """Both tables as Markdown."""
    cells: dict[tuple[str, int], Rounds] = defaultdict(lambda: defaultdict(dict))
    for visit in visits:
        cells[visit.cell][visit.arm][visit.round] = visit.speed
    if not cells:
        return "no visits"
    arms = sorted({arm for rounds in cells.values() for arm in rounds}, key=_place)
    ratios = ["goodput / best k", "goodput / target-only"]
    ratios += [name.replace("goodput", "threshold") for name in ratios]
    lines = [
        "Tokens per second as a ratio to target-only (k=0), geometric mean over the rounds:\n",
        _table(
            ["load", "streams", "rounds", "k=0, tok/s", *arms[1:]],
            [_speeds(cell, rounds, arms) for cell, rounds in cells.items()],
        ),
        "\nRatios of the same round, with 95 % intervals. The best fixed k that a round is held "
        "against\nis the best of the other rounds, so that it is not chosen for its luck in "
        "this one:\n",
        _table(
            ["load", "streams", "best k", *ratios],
            [_ratios(cell, rounds) for cell, rounds in cells.items()],
        ),
    ]
    whole = [_over_all(cells, name, arms) for name in ("mixed", "burst")]
    if any(whole):
        head = ["whole of", *(f"goodput / {arm}" for arm in arms if arm != "goodput")]
        lines.append("\nOver the whole of a changing load, all streams and rounds:\n")
        lines.append(_table(head, [row for row in whole if row]))
    if missing:
        lines.append(f"\n{missing} visits are still to be made.")
    return "\n".join(lines)


def _speeds(cell: tuple[str, int], rounds: Rounds, arms: Sequence[str]) -> list[str]:
    zero = rounds.get("k=0", {})
    speed = f"{fmean(zero.values()):.0f}" if zero else "–"
    row = [cell[0], _streams(cell), str(len(zero)), speed]
    ratios = (_ratio(rounds, arm, "k=0") for arm in arms[1:])
    return row + ["–" if not ratio else f"{_centre(ratio):.2f}" for ratio in ratios]


def _streams(cell: tuple[str, int]) -> str:
    """How many of a cell's requests run at once, as its profile says where the cell does not."""
    if cell[1]:
        return str(cell[1])
    phases = [phase.streams for phase in PROFILES[cell[0]].phases if phase.streams]
    return str(phases[0]) if len(set(phases)) == 1 else f"{min(phases)} to {max(phases)}"


def _ratios(cell: tuple[str, int], rounds: Rounds) -> list[str]:
    row = [cell[0], _streams(cell), _best(rounds, leave=None) or "–"]
    for arm in ("goodput", "threshold"):
        row += [_interval(_against_best(rounds, arm)), _interval(_ratio(rounds, arm, "k=0"))]
    return row


def _over_all(cells: dict[tuple[str, int], Rounds], name: str, arms: Sequence[str]) -> list[str]:
    mine = [rounds for cell, rounds in cells.items() if cell[0] == name]
    if not mine:
        return []
    row = [name]
    for arm in arms:
        if arm != "goodput":
            row.append(_interval([x for rounds in mine for x in _ratio(rounds, "goodput", arm)]))
    return row


def _best(rounds: Rounds, *, leave: int | None) -> str | None:
    """The fixed k of the highest mean speed, round `leave` left out."""
    means = {
        arm: fmean(kept)
        for arm, speeds in rounds.items()
        if arm.startswith("k=") and (kept := [v for r, v in speeds.items() if r != leave])
    }
    return max(means, key=means.__getitem__) if means else None


def _against_best(rounds: Rounds, arm: str) -> list[float]:
    found = []
    for turn, speed in rounds.get(arm, {}).items():
        best = _best(rounds, leave=turn) or _best(rounds, leave=None)
        if best and turn in rounds[best]:
            found.append(speed / rounds[best][turn])
    return found


def _ratio(rounds: Rounds, arm: str, other: str) -> list[float]:
    """Of the rounds that have both."""
    mine, theirs = rounds.get(arm, {}), rounds.get(other, {})
    return [mine[turn] / theirs[turn] for turn in mine if turn in theirs]


def _centre(ratios: Sequence[float]) -> float:
    return exp(fmean(map(log, ratios)))


def _interval(ratios: Sequence[float]) -> str:
    """The geometric mean, with the 95 % interval where there are two rounds or more.

    >>> _interval([1.0, 1.02, 0.98])
    '1.00 (0.95–1.05)'
    >>> _interval([1.1])
    '1.10'
    """
    if not ratios:
        return "–"
    found = mean([log(ratio) for ratio in ratios])
    if found is None:
        return f"{_centre(ratios):.2f}"
    return f"{exp(found.value):.2f} ({exp(found.low):.2f}–{exp(found.high):.2f})"


def _place(arm: str) -> tuple[bool, int, str]:
    """Fixed k's by number, then the policies."""
    fixed = arm.startswith("k=")
    return not fixed, int(arm[2:]) if fixed else 0, arm


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
