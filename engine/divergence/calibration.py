"""How close two candidates must be for noise to swap them: measured in the run, not assumed.

Log-probabilities are differences of logits, and logits have the resolution of the
model's number format at their own size: the margins between candidates are multiples
of it. So the margins of a run tell its resolution. How far the margins of one and the
same position lie apart, in two answers that agree up to there or in an answer and the
pass that it was fed through again, tells the noise. All are of the reference: the arm
that is suspected has no say in how much it may differ.

A head in float32 over a body in bfloat16 gives margins that are multiples of nothing
while the body's rounding is in them, so that it is the body's format that bounds a tie.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdeck.engine.divergence.answers import Answer
from specdeck.engine.protocol.codec import Count, WrongType, read_record

STEPS = tuple(2.0**-n for n in range(1, 12))
"""Resolutions that a run is tested for, the coarsest first."""

FINE = 2.0**-10
"""Taken where margins are multiples of none, as in float32: what accumulates on the way
through the layers is far above float32's own spacing of a millionth."""

COARSE = 2.0**-4
"""bfloat16's spacing for logits of 8 to 16, taken where there is too little to go by."""

BODIES = {"float32": FINE, "float16": 2.0**-7, "bfloat16": COARSE}
"""What a model's number format rounds to in logits of 8 to 16; float32's as above."""

LEAST, MOST = 2.0, 8.0
"""Bounds of the near-tie threshold in steps of the resolution. Rounding alone moves a
margin by up to a step in either arm; a disagreement of more than eight is not rounding."""

_TOLERANCE = 3e-5
"""What float32 leaves of an exact multiple after a log-softmax."""
_SHARE = 0.75
"""Half of the multiples of a step are multiples of its double, so at three quarters at
least half of all logits have this step."""
_ENOUGH = 200
_QUANTILE = 0.9999
_FINENESS = 8
"""Bins for each doubling."""
_NONE = -1000
"""The bin of what is no distance at all."""
_BINS = {str(number): number for number in range(_NONE, -_NONE)}
"""By its spelling; a margin has 8 at most, so that its bin is far below the last of these."""


class _Stored(NamedTuple):
    """What `as_json` gives."""

    margins: Mapping[str, tuple[Count, ...]] = {}
    noise: Mapping[str, Count] = {}
    body: float | None = None
    mixed: bool = False


@dataclass(slots=True)
class Calibration:
    """What the margins of a run say about resolution and noise; of constant size."""

    margins: dict[str, list[int]] = field(default_factory=dict)
    """By arm: how many margins there were, then how many were multiples of each step."""
    noise: dict[int, int] = field(default_factory=dict)
    """How often margins of agreeing answers lay so far apart; bins of the logarithm."""
    body: float | None = None
    """What the body rounds to, of BODIES; None where the engine does not say."""
    mixed: bool = False
    """Whether the arms have bodies of different formats: the reference alone then tells little."""

    def note_formats(self, *dtypes: str | None) -> None:
        """Takes in the number formats of both bodies as their engines declare them."""
        known = {BODIES[name] for one in dtypes if (name := _format_name(one)) in BODIES}
        self.body = max(known) if known else None
        self.mixed = len(known) > 1

    def see(self, arm: str, answer: Answer) -> None:
        """Takes in the margins of one answer."""
        counts = self.margins.setdefault(arm, [0] * (1 + len(STEPS)))
        for margin in answer.margins():
            if margin is None or margin > 8:
                continue
            counts[0] += 1
            for number in range(_coarsest(margin), len(counts)):
                counts[number] += 1

    def compare(self, one: Answer, other: Answer, common: int) -> None:
        """Takes in how far the margins of two answers lie apart at their first `common` tokens."""
        noise = self.noise
        for a, b in zip(one.margins()[:common], other.margins()[:common], strict=False):
            if a is not None and b is not None:
                bin_ = _NONE if a == b else _bin(abs(a - b))
                noise[bin_] = noise.get(bin_, 0) + 1

    def see_noise(self, distances: Iterable[float]) -> None:
        """Takes in how far margins lie apart in a pass that an answer was fed through again."""
        for distance in distances:
            bin_ = _bin(abs(distance))
            self.noise[bin_] = self.noise.get(bin_, 0) + 1

    @property
    def sound(self) -> bool:
        """Whether there were margins enough to tell a resolution by."""
        return any(counts[0] >= _ENOUGH for counts in self.margins.values())

    def resolution(self) -> float:
        """The reference's step at the usual size of its logits."""
        if not self.sound:
            return COARSE
        return max(_step(counts) for counts in self.margins.values())

    def measured_noise(self) -> float | None:
        """Within which all but one in ten thousand margins agree; None without any."""
        total = sum(self.noise.values())
        if total < _ENOUGH:
            return None
        seen = 0
        for bin_, count in sorted(self.noise.items()):
            seen += count
            if seen >= _QUANTILE * total:
                return _edge(bin_)
        return None

    def near_tie(self) -> float:
        """The largest margin that noise may turn round, as a log-probability."""
        step = self.resolution()
        most = MOST * max(step, COARSE if self.body is None else self.body)
        if self.mixed:
            return most
        return min(max(self.measured_noise() or 0.0, LEAST * step), most)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store."""
        noise = {str(bin_): count for bin_, count in self.noise.items()}
        return {"margins": self.margins, "noise": noise, "body": self.body, "mixed": self.mixed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """What `as_json` gave; raises WrongType for anything else."""
        found = read_record(_Stored, data, "calibration")
        if any(len(counts) != 1 + len(STEPS) for counts in found.margins.values()):
            raise WrongType(f"calibration.margins has not {1 + len(STEPS)} counts of each arm")
        if not found.noise.keys() <= _BINS.keys():
            raise WrongType("calibration.noise has other bins than there are")
        noise = {_BINS[bin_]: count for bin_, count in found.noise.items()}
        margins = {arm: list(counts) for arm, counts in found.margins.items()}
        return cls(margins, noise, found.body, found.mixed)


def _format_name(dtype: str | None) -> str:
    """The format's own name, as `torch.bfloat16` has it too."""
    return (dtype or "").rpartition(".")[2]


def _step(counts: list[int]) -> float:
    total, *fitting = counts
    if total < _ENOUGH:
        return FINE
    return next((s for s, n in zip(STEPS, fitting, strict=True) if n >= _SHARE * total), FINE)


def _coarsest(margin: float) -> int:
    """The number, from 1, of the coarsest of STEPS that `margin` is a multiple of.

    Every finer one divides it as well; one more than there are steps where none does.

    >>> _coarsest(0.75), _coarsest(0.0), _coarsest(0.0001)
    (2, 1, 12)
    """
    finest = round(margin / STEPS[-1])
    if abs(margin - finest * STEPS[-1]) > _TOLERANCE:
        return len(STEPS) + 1
    halvings = (finest & -finest).bit_length() - 1 if finest else len(STEPS)
    return max(1, len(STEPS) - halvings)


def _bin(value: float) -> int:
    return math.ceil(_FINENESS * math.log2(value)) if value > _TOLERANCE else _NONE


def _edge(bin_: int) -> float:
    return 0.0 if bin_ <= _NONE else 2.0 ** (bin_ / _FINENESS)
