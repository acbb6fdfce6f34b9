"""What policies lose against an oracle that knows the best k of every segment, seed by seed.

The oracle is paired: it is driven through the same segments with the same seed, so that it
meets the same text, noise and prompts step by step, and has the k of each segment that is
best on average. What is left is what the policy lost, and not which of both was luckier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple, Protocol

from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.parameters import (
    BreakerParameters,
    GoodputParameters,
    ThresholdParameters,
)
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket
from specdeck.engine.policy.threshold import Threshold

_LONG_STEPS = 6000
"""Steps by which the best k of a segment is found."""
ALLOWED_MEAN, ALLOWED_WORST, LEAST_OF_ZERO, ALLOWED_SHIFTING = 0.02, 0.05, 0.98, 0.05
"""The targets."""


class World(Protocol):
    """Plays steps; `begin` goes on with a segment."""

    @property
    def t(self) -> float:
        """Seconds that were played."""

    @property
    def k_max(self) -> int:
        """The deepest k."""

    def begin(self, segment: Any, seed: str) -> None:
        """Equal seeds give equal chances at equal step numbers."""

    def requests(self) -> int:
        """How many requests the next step has."""

    def step(self, requests: int, k: int) -> Step:
        """The step of so many requests at `k`."""


class Load(NamedTuple):
    """A cell of the table."""

    name: str
    segments: Sequence[Any]
    shifting: bool = False
    """Whether its text shifts every second, for which more regret is allowed."""


class Outcome(NamedTuple):
    """One run of one seed."""

    tokens: int
    seconds: float
    steps: int
    opened: int = 0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Committed tokens per second."""
        return self.tokens / self.seconds


def runner(kind: str, k_max: int, *, breaker: BreakerParameters | None = None) -> PolicyRunner:
    """A policy by name: `goodput`, `threshold`, or `k=N`."""
    known = Estimates(k_max)
    guard = Breaker(breaker, known) if breaker else None
    if kind == "goodput":
        policy: Goodput | Threshold | Fixed = Goodput(GoodputParameters(), known, k=k_max)
    elif kind == "threshold":
        policy = Threshold(ThresholdParameters(), k_max=k_max)
    else:
        policy = Fixed(int(kind.removeprefix("k=")), k_max=k_max)
    return PolicyRunner(policy, known, breaker=guard)


def drive(
    world: World,
    auto: PolicyRunner,
    segments: Iterable[Any],
    seed: int,
    watch: Callable[[Step, PolicyRunner], None] | None = None,
    most: int | None = None,
) -> Outcome:
    """Has `auto` choose throughout the segments, for at most `most` steps."""
    tokens = steps = 0
    start = time.process_time()
    began = world.t
    for number, segment in enumerate(segments):
        if steps == most:
            break
        world.begin(segment, f"{seed} {number}")
        end = world.t + segment.seconds
        while world.t < end and steps != most:
            requests = world.requests()
            seen = world.step(requests, auto.decision.table[bucket(requests)])
            auto.choose(seen)
            tokens += seen.committed
            steps += 1
            if watch:
                watch(seen, auto)
    opened = auto.breaker.view().opened
    return Outcome(tokens, world.t - began, steps, opened, time.process_time() - start)


def drive_fixed(
    world: World, segments: Sequence[Any], ks: Sequence[int], seed: int, most: int | None = None
) -> Outcome:
    """The same at a fixed k for each segment."""
    tokens = steps = 0
    began = world.t
    for number, (segment, k) in enumerate(zip(segments, ks, strict=True)):
        world.begin(segment, f"{seed} {number}")
        end = world.t + segment.seconds
        while world.t < end and steps != most:
            seen = world.step(world.requests(), k)
            tokens += seen.committed
            steps += 1
    return Outcome(tokens, world.t - began, steps)


class Oracle:
    """Knows the best k of each segment of a world, from long runs at every k."""

    def __init__(self, make: Callable[[], World]) -> None:
        self._make = make
        self._best: dict[Any, int] = {}

    def best(self, segment: Any) -> int:
        """The k of most tokens per second on average."""
        long = segment._replace(seconds=float("inf"))
        found = self._best.get(long)
        if found is None:
            rates = [
                drive_fixed(self._make(), [long], [k], 0, most=_LONG_STEPS).rate
                for k in range(self._make().k_max + 1)
            ]
            found = self._best[long] = rates.index(max(rates))
        return found


class Cell(NamedTuple):
    """What a load came to over all seeds."""

    name: str
    best: tuple[int, ...]
    """The k's of the oracle."""
    regrets: list[float]
    of_zero: list[float]
    """The rate as a share of target-only's."""
    opened: float
    """How often the breaker opened in a run, on average."""
    shifting: bool

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        allowed = ALLOWED_SHIFTING if self.shifting else ALLOWED_MEAN
        return (
            fmean(self.regrets) <= allowed
            and (self.shifting or max(self.regrets) <= ALLOWED_WORST)
            and min(self.of_zero) >= LEAST_OF_ZERO
        )

    def __str__(self) -> str:
        mean = fmean(self.regrets)
        half = 1.96 * stdev(self.regrets) / sqrt(len(self.regrets)) if self.regrets[1:] else 0.0
        ks = ",".join(map(str, sorted(set(self.best))))
        return (
            f"{self.name:34s}{ks:>9s}{mean:9.1%} ± {half:4.1%}{max(self.regrets):8.1%}"
            f"{min(self.of_zero):11.3f}{self.opened:8.1f}  {'' if self.met else 'missed'}"
        )


HEAD = (
    f"{'load':34s}{'best k':>9s}{'regret':>9s}   95 %{'worst':>9s}{'least of 0':>11s}{'opened':>8s}"
)


def measure(
    make: Callable[[], World],
    oracle: Oracle,
    load: Load,
    seeds: Iterable[int],
    kind: str = "goodput",
    breaker: BreakerParameters | None = None,
) -> Cell:
    """A load over all seeds: the policy, the oracle and target-only on each."""
    best = [oracle.best(segment) for segment in load.segments]
    regrets, of_zero, opened = [], [], []
    for seed in seeds:
        ours = drive(make(), runner(kind, make().k_max, breaker=breaker), load.segments, seed)
        most = drive_fixed(make(), load.segments, best, seed)
        zero = drive_fixed(make(), load.segments, [0] * len(best), seed)
        regrets.append(1 - ours.rate / most.rate)
        of_zero.append(ours.rate / zero.rate)
        opened.append(ours.opened)
    return Cell(load.name, tuple(best), regrets, of_zero, fmean(opened), load.shifting)
