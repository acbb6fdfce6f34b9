"""How often each position of a draft is accepted, as of late.

Position i is counted among the steps whose drafts were to be i tokens or longer, given
that position i - 1 was accepted: with k moving, any other denominator would understate
the deep positions. The products of these shares are the expected tokens of every k,
smaller ones included, at no cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, sqrt

_FAST_STEPS = 12
_MIDDLE_STEPS = 48
"""A change that few drafts at a time cannot show, since one stream makes one in a step."""
_NEGLECTED = 0.1
"""How fast a position that is not drafted ages, beside one that is."""

_PRIOR = 0.5
_PRIOR_DRAFTS = 2.0
_SHIFT = 16.0
_SHIFT_MORE = 3.0
"""Squared standard errors, over all positions, by which lately and before must differ to be two
kinds of text; and what each position beyond the first adds to that."""
_FEWEST = 5.0
_ALIKE_DRAFTS = 10.0
"""Drafts of a window from which the requests they come from are fewer than they."""
_OVERDISPERSION = 2.0
"""Tokens of one request are alike, so a window says less than its number of drafts."""


class Acceptance:
    """Windows of three lengths over the positions of the drafts.

    The long one is the estimate. When a shorter one disagrees with it beyond chance, the
    text has changed, and the long one is started again from the shortest.
    """

    def __init__(self, k_max: int, memory_steps: int = 400) -> None:
        self._k_max = k_max
        self._memory = memory_steps
        self._block: list[list[float]] = [[0, 0] for _ in range(k_max)]
        self._steps = 0
        self._slow: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self._fast: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self._middle: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self.survival: list[float] = []
        """Expected share of requests whose draft is accepted up to each position."""
        self.expected: list[float] = []
        """Expected committed tokens of a request in one step, for k = 0…k_max."""
        self._estimate()

    def add(self, chances: int, verified: int, accepted: Iterable[int], *, steps: int = 1) -> None:
        """Counts steps: `chances` requests that could have had a draft of `verified` tokens.

        `accepted` has how many did accept each position, both summed over the `steps`.
        """
        self._steps += steps
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
        medium = exp(-steps / _MIDDLE_STEPS)
        neglected = exp(-steps * _NEGLECTED / self._memory)
        for (chances, accepted), long, middle, short in zip(
            self._block, self._slow, self._middle, self._fast, strict=True
        ):
            if not chances:
                long[0] *= neglected
                long[1] *= neglected
                continue
            long[0] = long[0] * slow + chances
            long[1] = long[1] * slow + accepted
            middle[0] = middle[0] * medium + chances
            middle[1] = middle[1] * medium + accepted
            short[0] = short[0] * fast + chances
            short[1] = short[1] * fast + accepted
        drafted = sum([counts[0] > 0 for counts in self._block])
        limit = _SHIFT + _SHIFT_MORE * (drafted - 1)
        shifted = (
            _apart(self._fast[:drafted], self._slow) > limit
            or _apart(self._middle[:drafted], self._slow) > limit
        )
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
        for counts, short, middle, long in zip(
            self._block, self._fast, self._middle, self._slow, strict=True
        ):
            if not counts[0]:
                short[:] = (0.0, 0.0)
            middle[:] = long[:] = short

    def _estimate(self) -> None:
        """A position never seen is taken to be accepted like the one before it."""
        share, reached, tokens = _PRIOR, 1.0, 1.0
        survival, expected = [], [1.0]
        for chances, accepted in self._slow:
            share = (accepted + _PRIOR_DRAFTS * share) / (chances + _PRIOR_DRAFTS)
            reached *= share
            tokens += reached
            survival.append(reached)
            expected.append(tokens)
        self.survival, self.expected = survival, expected


def _apart(shorter: Sequence[Sequence[float]], longer: Sequence[Sequence[float]]) -> float:
    """By how many standard errors, squared, two windows disagree over the positions of both.

    Many drafts at once come from few requests: their count overstates what they say.

    >>> _apart([(12, 12)], [(400, 200)]) > 16 > _apart([(12, 8)], [(400, 200)])
    True
    """
    total = 0.0
    for (drafts, accepted), (known, kept) in zip(shorter, longer, strict=False):
        if drafts >= _FEWEST <= known:
            p = (kept + 1) / (known + 2)
            # An exponential window whose weights add up to n spreads like one of 2 n equal ones.
            chance = p * (1 - p) * (1 / (2 * drafts) + 1 / known)
            apart = accepted / drafts - p
            apart = apart * apart / chance
            total += apart / sqrt(drafts / _ALIKE_DRAFTS) if drafts > _ALIKE_DRAFTS else apart
    return total
