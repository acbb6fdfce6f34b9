"""How close two candidates must be for noise to swap them: measured in the run, not assumed.

Log-probabilities are differences of logits, and logits have the resolution of the
model's number format at their own size: the margins between candidates are multiples
of it. So the margins of a run tell its resolution. How far the margins of one and the
same position lie apart, in two answers that agree up to there, tells the noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdeck.engine.divergence.answers import Answer

STEPS = tuple(2.0**-n for n in range(1, 12))
"""Resolutions that a run is tested for, the coarsest first."""

FINE = 2.0**-10
"""Taken where margins are multiples of none, as in float32: what accumulates on the way
through the layers is far above float32's own spacing of a millionth."""

COARSE = 2.0**-4
"""bfloat16's spacing for logits of 8 to 16, taken where there is too little to go by."""

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


@dataclass(slots=True)
class Calibration:
    """What the margins of a run say about resolution and noise; of constant size."""

    margins: dict[str, list[int]] = field(default_factory=dict)
    """By arm: how many margins there were, then how many were multiples of each step."""
    noise: dict[int, int] = field(default_factory=dict)
    """How often margins of agreeing answers lay so far apart; bins of the logarithm."""

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

    @property
    def sound(self) -> bool:
        """Whether there were margins enough to tell a resolution by."""
        return any(counts[0] >= _ENOUGH for counts in self.margins.values())

    def resolution(self) -> float:
        """The coarser arm's step at the usual size of its logits."""
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
        return min(max(self.measured_noise() or 0.0, LEAST * step), MOST * step)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store."""
        return {"margins": self.margins, "noise": {str(k): v for k, v in self.noise.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """What `as_json` gave."""
        noise = {int(k): int(v) for k, v in data.get("noise", {}).items()}
        return cls({k: list(v) for k, v in data.get("margins", {}).items()}, noise)


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
