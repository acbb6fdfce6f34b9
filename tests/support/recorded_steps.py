"""An engine made of recorded steps: policies can be tried on it a million steps at a time.

What a step takes at a k is a line through the means of the recorded steps, times the noise
of a recorded step; what it commits are the drafts of a recorded step at the deepest k, cut to
length, since a position is accepted or not whatever would have followed it. So every k meets
the same text and the same machine. Noise and drafts are played in the order in which they
came, a stretch at a time: a request that is easy to draft stays so for a while, and a machine
that is slow does too. Where a stretch begins is chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import fmean, linear_regression
from typing import Any

from specdeck.engine.plugin.recorder import StepOrder
from specdeck.engine.policy.step import Step

FEWEST = 30
"""Steps of each k from which a batch size counts as recorded."""
_STRETCH = 64
"""Steps that are played in a row."""


class Cell:
    """The steps of one text and one batch size."""

    def __init__(
        self, seconds: Sequence[float], noise: Sequence[float], drafts: Sequence[Sequence[int]]
    ) -> None:
        """`seconds` of a mean step by k from 0, `noise` of single steps as factors of it.

        `drafts` has, by step, how many drafts were accepted at each position.
        """
        self.seconds = tuple(seconds)
        mean = fmean(noise)
        self.noise = [factor / mean for factor in noise]
        depth = len(self.seconds) - 1
        self.drafts = [
            [_cut(accepted, k, depth) for accepted in drafts] for k in range(len(self.seconds))
        ]
        """By k: accepted drafts by position, and their sum."""

    def rate(self, requests: int, k: int) -> float:
        """Committed tokens per second at a fixed k."""
        return (requests + fmean(total for _, total in self.drafts[k])) / self.seconds[k]


Pools = dict[tuple[str, int], Cell]
"""Cells by text and batch size."""


class Engine:
    """Plays steps; remembers which k the next one verifies."""

    def __init__(self, pools: Pools, random: Random) -> None:
        self._pools = pools
        self._random = random.random
        self._verified = 0
        self._played: Cell | None = None
        self._left = self._noise = self._draft = 0
        self.t = 0.0

    def reseed(self, random: Random) -> None:
        """Begins another stretch, and draws the next ones from `random`."""
        self._random, self._left = random.random, 0

    def step(self, text: str, requests: int, k: int) -> Step:
        """One step at `k`; the one in which k changes costs half of each."""
        cell = self._pools[text, requests]
        if cell is not self._played or not self._left:
            self._played, self._left = cell, _STRETCH
            self._noise = int(self._random() * len(cell.noise))
            self._draft = int(self._random() * len(cell.drafts[0]))
        self._left -= 1
        verified, self._verified = self._verified, k
        settled = verified == k
        mean = cell.seconds[k] if settled else (cell.seconds[k] + cell.seconds[verified]) / 2
        noise, drafts = cell.noise, cell.drafts[verified]
        self._noise = at = self._noise + 1 if self._noise + 1 < len(noise) else 0
        self._draft = now = self._draft + 1 if self._draft + 1 < len(drafts) else 0
        seconds, (accepted, total) = mean * noise[at], drafts[now]
        self.t = t = self.t + seconds
        drafted = requests if verified else 0
        return Step(
            0, t, requests, requests + drafted * verified, k, drafted, drafted * verified, total,
            seconds, requests + total, accepted, 0, verified, settled,
        )  # fmt: skip


def read_pools(texts: Mapping[str, Iterable[Mapping[str, Any]]]) -> Pools:
    """Pools from the plugin's records of steps, by kind of text.

    Batch sizes at which some k has fewer than `FEWEST` steps are left out.
    """
    found: dict[tuple[str, int], dict[int, list[Step]]] = {}
    for text, records in texts.items():
        order = StepOrder()
        for record in records:
            step = read_step(record, order)
            if step.settled and not step.prefill and step.seconds is not None:
                found.setdefault((text, step.requests), {}).setdefault(step.k, []).append(step)
    deepest = max((k for by_k in found.values() for k in by_k), default=0)
    return {
        key: _cell(by_k)
        for key, by_k in found.items()
        if all(len(by_k.get(k, ())) >= FEWEST for k in range(deepest + 1))
    }


def read_step(record: Mapping[str, Any], order: StepOrder) -> Step:
    """A step as the plugin sent it; `order` has followed the steps before it."""
    verified, settled = order.follow(record["step"], record["k"])
    return Step.from_json(record)._replace(verified=verified, settled=settled)


def rate(pools: Pools, text: str, requests: int, k: int) -> float:
    """Committed tokens per second at a fixed k."""
    return pools[text, requests].rate(requests, k)


def _cell(by_k: Mapping[int, Sequence[Step]]) -> Cell:
    means = [fmean(step.seconds or 0.0 for step in by_k[k]) for k in range(len(by_k))]
    if len(means) > 3:
        means[1:] = _line(means[1:])
    every = sorted((step for steps in by_k.values() for step in steps), key=lambda step: step.t)
    noise = [(step.seconds or 0.0) / means[step.k] for step in every]
    return Cell(means, noise, [step.accepted_per_position for step in by_k[max(by_k)]])


def _line(means: Sequence[float]) -> list[float]:
    """The straight line through what steps take from k = 1: each k is one pass of the draft.

    On a machine with other work the means of a few rounds are off it by some percent.

    >>> [round(mean, 3) for mean in _line([0.030, 0.034, 0.036, 0.040])]
    [0.03, 0.033, 0.037, 0.04]
    """
    slope, base = linear_regression(range(len(means)), means)
    return [base + slope * k for k in range(len(means))]


def _cut(accepted: Sequence[int], k: int, depth: int) -> tuple[tuple[int, ...], int]:
    """What a step accepts whose drafts end at position `k`, with its sum.

    >>> _cut((4, 2, 1), 2, 3)
    ((4, 2, 0), 6)
    """
    kept = tuple(accepted[:k])
    return kept + (0,) * (depth - len(kept)), sum(kept)
