"""How often each position of a draft is accepted, as of late.

Position i is counted among the steps whose drafts were to be i tokens or longer, given
that position i - 1 was accepted: with k moving, any other denominator would understate
the deep positions. The products of these shares are the expected tokens of every k,
smaller ones included, at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt

_FAST_STEPS = 12
_NEGLECTED = 0.1
"""How fast a position that is not drafted ages, beside one that is."""

_PRIOR = 0.5
_PRIOR_DRAFTS = 2.0
_SHIFT = 4.0
"""Standard errors by which lately and before must differ to be two kinds of text."""
_FEWEST = 5.0
_OVERDISPERSION = 2.0
"""Tokens of one request are alike, so a window says less than its number of drafts."""


class Acceptance:
    """Windows of two lengths over the positions of the drafts.

    The long one is the estimate. When the short one disagrees with it beyond chance, the
    text has changed, and the long one is started again from it.
    """

    def __init__(self, k_max: int, memory_steps: int = 400) -> None:
        self._k_max = k_max
        self._memory = memory_steps
        self._block: list[list[float]] = [[0, 0] for _ in range(k_max)]
        self._steps = 0
        self._slow: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self._fast: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self.survival: list[float] = []
        """Expected share of requests whose draft is accepted up to each position."""
        self.expected: list[float] = []
        """Expected committed tokens of a request in one step, for k = 0…k_max."""
        self._estimate()

    def add(self, chances: int, verified: int, accepted: Sequence[int]) -> None:
        """Counts a step: `chances` requests that could have had a draft of `verified` tokens."""
        self._steps += 1
        before: float = chances
        for counts, here in zip(self._block[:verified], accepted, strict=False):
            counts[0] += before
            if here < before:  # no more can be accepted than were there
                before = here
            counts[1] += before

    def merge(self) -> bool:
        """Takes the counted steps into the windows; whether the text has changed."""
        steps, self._steps = self._steps, 0
        if not steps:
            return False
        slow, fast = exp(-steps / self._memory), exp(-steps / _FAST_STEPS)
        neglected = exp(-steps * _NEGLECTED / self._memory)
        shifted = False
        for position, counts in enumerate(self._block):
            chances, accepted = counts
            long, short = self._slow[position], self._fast[position]
            if not chances:
                long[0] *= neglected
                long[1] *= neglected
                continue
            long[0] = long[0] * slow + chances
            long[1] = long[1] * slow + accepted
            short[0] = short[0] * fast + chances
            short[1] = short[1] * fast + accepted
            shifted = shifted or _differ(short, long)
        if shifted:
            self._start_again()
        for counts in self._block:
            counts[0] = counts[1] = 0
        self._estimate()
        return shifted

    def drafts(self, position: int) -> float:
        """The drafts that the estimate up to `position`, from 1, rests on."""
        reaching = self.survival[position - 2] if position > 1 else 1.0
        return self._slow[position - 1][0] / max(reaching, 0.02)

    def error(self, low: int, high: int) -> float:
        """Standard error of the expected tokens that positions low + 1…high add."""
        if low >= high:
            return 0.0
        added = sum(self.survival[low:high])
        drafts = self.drafts(low + 1) + _PRIOR_DRAFTS
        return sqrt(_OVERDISPERSION * (high - low) * max(added, 0.02) / drafts)

    def _start_again(self) -> None:
        for position, (long, short) in enumerate(zip(self._slow, self._fast, strict=True)):
            seen = bool(self._block[position][0])
            long[:] = short if seen else (0.0, 0.0)
            if not seen:
                short[:] = (0.0, 0.0)

    def _estimate(self) -> None:
        """A position never seen is taken to be accepted like the one before it."""
        share, reached, tokens = _PRIOR, 1.0, 1.0
        self.survival, self.expected = [], [1.0]
        for chances, accepted in self._slow:
            share = (accepted + _PRIOR_DRAFTS * share) / (chances + _PRIOR_DRAFTS)
            reached *= share
            tokens += reached
            self.survival.append(reached)
            self.expected.append(tokens)


def _differ(short: Sequence[float], long: Sequence[float]) -> bool:
    """Whether two windows disagree beyond chance.

    >>> _differ((12, 12), (400, 200)), _differ((12, 8), (400, 200))
    (True, False)
    """
    drafts, accepted = short
    if drafts < _FEWEST or long[0] < _FEWEST:
        return False
    p = (long[1] + 1) / (long[0] + 2)
    # An exponential window whose weights add up to n spreads like one of 2 n equal weights.
    chance = p * (1 - p) * (1 / (2 * drafts) + 1 / long[0])
    return abs(accepted / drafts - p) > _SHIFT * sqrt(chance) * _breadth(drafts)


def _breadth(drafts: float) -> float:
    """Many drafts at once come from few requests: their count overstates what they say.

    >>> _breadth(10), round(_breadth(160), 2)
    (1.0, 2.0)
    """
    return max(1.0, sqrt(sqrt(drafts / 10)))
