"""What speculation is worth, measured: the time it took against what target-only would take.

The tokens of a step at batch size b would have cost target-only tokens / b steps at k = 0,
whose duration at that batch size is measured and follows the machine. Nothing is claimed
for a batch size at which target-only was never measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Self

from specdeck.engine.policy.batches import BUCKETS
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.observed import StepSeen

MEASURED_STEPS = 6.0
"""Steps at k = 0 from which target-only counts as measured."""
_BLOCK_STEPS = 8
"""Steps in a row that deviate as one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One window of work."""

    seconds: float
    """Of all steps whose duration is known."""
    steps: int
    drafts: int
    drafted: int
    accepted: int
    speculating_s: float
    """Seconds of the steps that drafted or verified, where target-only was measured."""
    target_only_s: float
    """Seconds that target-only would have taken for the tokens of the same steps."""
    compared: int = 0
    """The steps behind the two figures above."""
    squares: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Sums over `blocks` of speculating², target-only² and their product."""
    target_only_error: float = 0.0
    """Relative standard error of what a target-only step takes."""
    blocks: int = 0
    """The blocks of successive steps that `squares` sums over; 0 where each step is one."""

    def __add__(self, other: Self) -> Evidence:
        """Both windows as one."""
        mine, theirs = self.squares, other.squares
        return Evidence(
            self.seconds + other.seconds,
            self.steps + other.steps,
            self.drafts + other.drafts,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.speculating_s + other.speculating_s,
            self.target_only_s + other.target_only_s,
            self.compared + other.compared,
            (mine[0] + theirs[0], mine[1] + theirs[1], mine[2] + theirs[2]),
            self._weighed_error(other),
            self.blocks + other.blocks,
        )

    def _weighed_error(self, other: Self) -> float:
        """What both windows are in doubt of target-only: each by the time that rests on it."""
        worth = self.target_only_s + other.target_only_s
        if not worth:
            return max(self.target_only_error, other.target_only_error)
        mine = self.target_only_error * self.target_only_s
        return (mine + other.target_only_error * other.target_only_s) / worth

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def gain(self) -> float | None:
        """Speed against target-only, as a share; negative is a loss, None is unknown.

        >>> Evidence(1.0, 50, 50, 150, 75, 0.8, 1.0).gain
        0.25
        """
        return self.target_only_s / self.speculating_s - 1 if self.speculating_s else None

    @property
    def spread(self) -> float | None:
        """Relative deviation of single steps from the mean gain; None of fewer than five.

        Neighbours are alike, in text and in what else the machine does: were they not, blocks
        of them would deviate less than they do, and single steps as much as this.
        """
        blocks = self.blocks or self.compared
        if self.compared < 5 or blocks < 2 or not (self.speculating_s and self.target_only_s):
            return None
        ratio = self.target_only_s / self.speculating_s
        spent, worth, both = self.squares
        rest = max(0.0, worth - 2 * ratio * both + ratio * ratio * spent)
        return sqrt(rest * blocks / (blocks - 1) * self.compared) / self.target_only_s

    def gain_error(self, *, spread: float = 0.0) -> float | None:
        """Standard error of `gain`; None when there are too few steps to tell.

        `spread` is the least that single steps are taken to deviate.
        """
        own, gain = self.spread, self.gain
        if own is None or gain is None:
            return None
        steps = max(own, spread) / sqrt(self.compared)
        return (1 + gain) * sqrt(steps**2 + self.target_only_error**2)

    @property
    def saved_s(self) -> float:
        """Seconds of engine time saved; negative when lost."""
        return self.target_only_s - self.speculating_s


class Meter:
    """Sums up windows; `experience` supplies what target-only takes."""

    def __init__(self, experience: Experience) -> None:
        self._experience = experience
        self._times = experience.times
        self._target_only: list[float | None] = [None] * BUCKETS
        self.clear()

    def clear(self) -> None:
        """Begins a window."""
        self._version = -1
        self.seconds = 0.0
        self._steps = self._drafts = self._drafted = self._accepted = 0
        self._speculating = self._worth = 0.0
        self._compared = 0
        self._spent2 = self._worth2 = self._both = self._doubt = 0.0
        self._block = (0, 0.0, 0.0)
        self._blocks = 0

    def add(self, seen: StepSeen) -> None:
        """Counts a step that `experience` has taken in."""
        if seen.drafted:
            self._drafts += seen.drafts
            self._drafted += seen.drafted
            self._accepted += sum(seen.accepted)
        seconds = seen.seconds
        if seconds is None:
            return
        self.seconds += seconds
        self._steps += 1
        if seen.prefill or not (seen.k or seen.verified):
            return
        steps, spent, gained = self._block
        if not steps and self._version != self._times.version:
            self._version = self._times.version
            self._target_only = [None] * BUCKETS
        here = self._experience.bucket
        alone = self._target_only[here]
        if alone is None:
            alone = self._target_only[here] = self._measured(here)
        if alone:
            worth = alone * seen.committed / seen.requests
            self._speculating += seconds
            self._worth += worth
            self._compared += 1
            steps, spent, gained = self._block = steps + 1, spent + seconds, gained + worth
            if steps == _BLOCK_STEPS:
                self._close_block(spent, gained)

    def _close_block(self, spent: float, worth: float) -> None:
        self._spent2 += spent * spent
        self._worth2 += worth * worth
        self._both += spent * worth
        self._blocks += 1
        self._block = (0, 0.0, 0.0)

    def evidence(self) -> Evidence:
        """The window so far; it begins another block of steps."""
        steps, spent, worth = self._block
        if steps:
            self._close_block(spent, worth)
        return Evidence(
            self.seconds,
            self._steps,
            self._drafts,
            self._drafted,
            self._accepted,
            self._speculating,
            self._worth,
            self._compared,
            (self._spent2, self._worth2, self._both),
            self._doubt,
            self._blocks,
        )

    def _measured(self, here: int) -> float:
        """Seconds of a target-only step; 0 when it was not measured."""
        if self._times.measured(here, 0) < MEASURED_STEPS:
            return 0.0
        self._doubt = max(self._doubt, self._times.error(here, 0))
        return self._times.seconds(here, 0) or 0.0
