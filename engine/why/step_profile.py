"""What steps take, by the requests in them and the k: to be compared with earlier ones.

Steps are comparable that pass over about as many requests, with the same k and about as many tokens
of prompts. What a step with prompt tokens takes beyond one without is the prompt's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, quantiles
from typing import NamedTuple

from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket
from specdeck.engine.why.figures import Estimate

Kind = tuple[int, int, int]
"""The bucket of the requests in a step, its k, and the binary digits of its prompt tokens."""
LEAST_STEPS = 16
"""Of one kind, to say what such a step takes."""
_MOST_KINDS = 128
_LONGEST_S = 3600.0
"""Of a step that is believed."""
_MOST_REQUESTS = 1_000_000
_BLOCK = 32
"""Steps in a row that are drawn together: a slow stretch is one event."""
_DRAWS = 200


@dataclass(frozen=True, slots=True)
class StepTime:
    """Steps of one kind, in seconds."""

    steps: int
    low: float
    """A fifth took less."""
    middle: float
    high: float
    """A fifth took more."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What steps took at some time."""

    times: Mapping[Kind, StepTime] = field(default_factory=dict)
    prefill: float | None = None
    """Share of the time that went to prompts; None where no step told."""


class TimedStep(NamedTuple):
    """A step whose time is known."""

    t: float
    kind: Kind
    seconds: float
    prefill: int


def timed_steps(steps: Iterable[Step]) -> list[TimedStep]:
    """Those that were timed: one after an idle engine took nobody knows how long."""
    return [
        TimedStep(
            step.t,
            (bucket(step.requests), step.k, step.prefill.bit_length()),
            step.seconds,
            step.prefill,
        )
        for step in steps
        if step.seconds is not None
        and 0 < step.seconds < _LONGEST_S
        and 0 < step.requests < _MOST_REQUESTS
        and step.prefill >= 0
    ]


def profile_steps(steps: Iterable[Step]) -> StepProfile:
    """The profile of `steps`, of the kinds that were seen most."""
    timed = timed_steps(steps)
    share = prefill_share(timed)
    found = sorted(group_steps(timed).items(), key=lambda item: -len(item[1]))
    return StepProfile(
        {kind: summarise(seconds) for kind, seconds in found[:_MOST_KINDS]},
        None if share is None else share.value,
    )


def group_steps(steps: Iterable[TimedStep]) -> dict[Kind, list[float]]:
    """Seconds of the steps by kind, of kinds with enough of them."""
    kinds: dict[Kind, list[float]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step.seconds)
    return {kind: seconds for kind, seconds in kinds.items() if len(seconds) >= LEAST_STEPS}


def summarise(seconds: Sequence[float]) -> StepTime:
    """What steps of one kind took."""
    fifths = quantiles(seconds, n=5)
    return StepTime(len(seconds), fifths[0], median(seconds), fifths[3])


def prefill_share(steps: Sequence[TimedStep]) -> Estimate | None:
    """The share of the time that prompts took; None without steps to measure it by.

    The interval is of a bootstrap over blocks of steps, drawn alike each time.

    >>> decode = [TimedStep(0.0, (4, 3, 0), 0.01, 0)] * 96
    >>> mixed = [TimedStep(0.0, (4, 3, 7), 0.03, 64)] * 32
    >>> round(prefill_share([*decode, *mixed]).value, 3)
    0.333
    """
    alone = {kind: fmean(seconds) for kind, seconds in group_steps(steps).items() if not kind[2]}
    if not alone:
        return None
    blocks = []
    for first in range(0, len(steps), _BLOCK):
        extra = whole = 0.0
        for step in steps[first : first + _BLOCK]:
            whole += step.seconds
            if step.prefill:
                usual = _nearest(alone, step.kind)
                extra += max(0.0, step.seconds - usual)
        blocks.append((extra, whole))
    return _bootstrap(blocks)


def _nearest(alone: Mapping[Kind, float], kind: Kind) -> float:
    nearest = min(alone, key=lambda one: (abs(one[1] - kind[1]), abs(one[0] - kind[0])))
    return alone[nearest]


def _bootstrap(blocks: Sequence[tuple[float, float]]) -> Estimate | None:
    from random import Random

    whole = sum(total for _, total in blocks)
    if not whole:
        return None
    random, found = Random(15), []
    for _ in range(_DRAWS):
        drawn = random.choices(blocks, k=len(blocks))
        total = sum(each for _, each in drawn)
        found.append(sum(extra for extra, _ in drawn) / total if total else 0.0)
    found.sort()
    value = sum(extra for extra, _ in blocks) / whole
    tail = _DRAWS // 40
    return Estimate(value, min(value, found[tail]), max(value, found[-1 - tail]))
