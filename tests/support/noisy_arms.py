"""Checks of engines that exist as numbers: noise of a known size, and defects of a known share.

An answer is a row of choices between two tokens. Most are no choice at all; at a *close call* the
logits lie `margin` apart, and every ask adds noise of its own to it. Beside the close calls there
are places at which several rows a step choose otherwise than one does (shape), places at which the
serving arm alone does (excess), and tokens that the target was sure of and serving replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np

from specdeck.engine.divergence.canary import Canary
from specdeck.engine.divergence.compare import Divergence, Recheck
from specdeck.engine.divergence.floors import (
    Flip,
    group_answers,
    is_noisy,
    more_asks,
    weigh_excess,
)
from specdeck.engine.divergence.statistics import Rate
from specdeck.engine.divergence.verdict import CheckEvidence, Verdict, judge

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIGMA = 0.05
"""Noise of one ask, in a margin: a log-probability."""
NEAR_TIE = 0.28
"""Within which all but one in ten thousand margins of two asks agree."""
_WIDEST = 5 * SIGMA
_CALLS = 12
"""Close calls of one prompt at most."""
_PARTS = 0.5642 * 2 / 10
"""The chance that two asks part at one of them."""
SHAPE, EXCESS, DEFECT = _CALLS, _CALLS + 1, _CALLS + 2
_R1, _R2, _S1, _S2, _R3, _R4, _S3, _S4, _LOOKS = range(9)
LOOKS = 4


@dataclass(frozen=True, slots=True)
class NoisyEngine:
    """How often what happens, as shares of prompts."""

    repeat: float = 0.0
    """An answer differs from the same one asked again."""
    shape: float = 0.0
    """Verification takes the other side of a close call, in each ask."""
    paired: float = 1.0
    """How far one pass over an answer does as verification does: 1 is always, 0 is by chance."""
    varied: bool = False
    """Whether each pass over an answer is of another shape, and takes a side of its own."""
    excess: float = 0.0
    """Serving alone takes the other side of a close call, in each ask."""
    defect: float = 0.0
    """Serving replaces a token that the target was sure of."""
    by_ask: bool = False
    """Whether that depends on the ask, and not on the prompt."""


def ask(
    engine: NoisyEngine, prompts: int, random: np.random.Generator
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """What each ask of each prompt chose at each place, and the margins of the close calls."""
    asks = _LOOKS + LOOKS
    close = random.poisson(-log(1 - engine.repeat) / _PARTS, prompts)
    margins = random.uniform(-_WIDEST, _WIDEST, (prompts, _CALLS))
    noise = random.normal(0.0, SIGMA, (asks, prompts, _CALLS))
    chosen = np.zeros((asks, prompts, DEFECT + 1), dtype=np.int8)
    there = np.arange(_CALLS) < close[:, None]
    chosen[:, :, :_CALLS] = (margins + noise > 0) & there
    serving, looks = [_S1, _S2, _S3, _S4], slice(_LOOKS, None)
    flipped, like = random.random(prompts) < engine.shape, random.random(prompts)
    chosen[serving, :, SHAPE] = flipped
    alone = engine.shape * (1 - engine.paired) / 2 / (1 - engine.shape)
    if engine.varied:
        tied = flipped | (like < engine.shape / (1 - engine.shape))
        chosen[looks, :, SHAPE] = tied & (random.random((LOOKS, prompts)) < 0.5)
    else:
        chosen[looks, :, SHAPE] = np.where(flipped, like < (1 + engine.paired) / 2, like < alone)
    chosen[serving, :, EXCESS] = random.random(prompts) < engine.excess
    wrong = random.random((4, prompts) if engine.by_ask else prompts) < engine.defect
    chosen[serving, :, DEFECT] = wrong
    return chosen, margins


def check(engine: NoisyEngine, prompts: int, seed: int, threshold: float = 0.015) -> Verdict:
    """What the check says of so many prompts."""
    return judge(gather(engine, prompts, seed), threshold)


def gather(engine: NoisyEngine, prompts: int, seed: int) -> CheckEvidence:
    """What a check finds in so many prompts."""
    random = np.random.default_rng(seed)
    chosen, margins = ask(engine, prompts, random)
    patterns = Counter(_patterns(chosen))
    serving = {*_material(chosen, margins, _S1, _R1, random)}
    serving |= {*_material(chosen, margins, _S2, _R2, random)}
    floor = {*_material(chosen, margins, _R2, _R1, random)}
    differ = (chosen[_S1] != chosen[_R1]).any(axis=1)
    return CheckEvidence(
        mismatches=Rate(int(differ.sum()), prompts),
        excess=weigh_excess(patterns),
        material=len(serving),
        floor_material=len(floor),
        drafted=1000,
    )


def count_patterns(engine: NoisyEngine, prompts: int, seed: int) -> Counter[str]:
    """How many prompts have which pattern of equal answers."""
    chosen, _ = ask(engine, prompts, np.random.default_rng(seed))
    return Counter(_patterns(chosen))


def _patterns(chosen: NDArray[np.int8]) -> Iterator[str]:
    first = chosen[[_R1, _R2, _S1, _S2, _LOOKS]]
    noisy = (first != first[0]).any(axis=(0, 2))
    spent = 0
    for n, differs in enumerate(noisy):
        if not differs:
            yield "aa.aa.a"
            continue
        answers = [tuple(row) for row in chosen[:, n].tolist()]
        flips = [_flip(answers[_R1], one) for one in answers[_LOOKS:]]
        reference, serving = answers[_R1 : _R2 + 1], answers[_S1 : _S2 + 1]
        if is_noisy(group_answers(reference, serving)):
            more = more_asks(spent, n + 1)
            spent += 2 * more
            reference += answers[_R3 : _R3 + more]
            serving += answers[_S3 : _S3 + more]
        yield group_answers(reference, serving, flips)


def _flip(fed: tuple[int, ...], look: tuple[int, ...]) -> Flip:
    return next(((n, b) for n, (a, b) in enumerate(zip(fed, look, strict=True)) if a != b), None)


def _material(
    chosen: NDArray[np.int8],
    margins: NDArray[np.float64],
    ours: int,
    theirs: int,
    random: np.random.Generator,
) -> Iterator[int]:
    """The prompts in which the two part at a token that the target is sure of."""
    differ = chosen[ours] != chosen[theirs]
    for n in np.flatnonzero(differ.any(axis=1)):
        place = int(np.argmax(differ[n]))
        sure = place == DEFECT
        margin = 3.0 if sure else abs(float(margins[n, place])) if place < _CALLS else SIGMA / 2
        noise = random.normal(0.0, SIGMA, 5)
        # The target's own preference is on either side of a close call.
        side = 1.0 if sure or random.random() < 0.5 else -1.0
        gaps = tuple(max(0.0, side * margin + float(one)) for one in noise[2:])
        found = Divergence(
            place, 1, 2,
            margin_serving=-margin if sure else abs(margin + float(noise[0])),
            margin_reference=abs(margin + float(noise[1])),
            recheck=Recheck(min(gaps), 2, max(gaps), gaps),
        )  # fmt: skip
        if found.kind(NEAR_TIE) == "material":
            yield int(n)


def watch(
    usual: NDArray[np.float64],
    later: NDArray[np.float64],
    *,
    nights: int,
    most: int,
    seed: int,
    varies: float = 0.0,
) -> Canary:
    """The canary after `nights` with the `usual` rates of the prompts, and up to `most` others.

    The odds of a night are those of all prompts times one number, whose logarithm `varies`.
    """
    random, canary = np.random.default_rng(seed), Canary()
    names = [str(n) for n in range(len(usual))]
    for night in range(nights + most):
        busy = np.exp(random.normal(-(varies**2) / 2, varies))
        rates = usual if night < nights else later
        differ = random.binomial(2, busy * rates / (1 - rates + busy * rates))
        tonight: Mapping[str, int] = {names[n]: int(differ[n]) for n in np.flatnonzero(differ)}
        canary = canary.next_night(tonight)
        if canary.since is not None:
            break
    return canary
