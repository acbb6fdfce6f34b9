"""What the steps so far have taught: acceptance by position, step times by batch size and k."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from specdeck.engine.policy.acceptance import Acceptance
from specdeck.engine.policy.batches import bucket
from specdeck.engine.policy.elapsed import Elapsed
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.policy.step_times import StepTimes

BLOCK_STEPS = 8
"""Steps that are taken in together, so that a step itself costs next to nothing."""

_verified = attrgetter("verified")


class Experience:
    """Shared by the policy and the breaker of one engine; outlives a change of policy."""

    def __init__(self, k_max: int, memory_steps: int = 400) -> None:
        self.k_max = k_max
        self.acceptance = Acceptance(k_max, memory_steps)
        self.times = StepTimes()
        self.now = 0.0
        """Seconds since the first step, by a clock that does not jump."""
        self.closed = False
        """Whether the last step completed a block, so that there is something new to know."""
        self.shifted = False
        """Whether the text turned out to have changed in that block."""
        self.bucket = 0
        """Of the last step's batch size."""
        self._elapsed = Elapsed()
        self._k = -1
        self._block: list[StepSeen] = []
        """Steps of one bucket and one k that are still to be taken in."""
        self._unmerged: list[StepSeen] = []
        """Those whose acceptance is still to be taken in: it belongs to no k in particular."""
        self._t = 0.0

    def add(self, seen: StepSeen) -> None:
        """Learns from a step."""
        here, k = bucket(seen.requests), seen.k
        self.closed = self.shifted = False
        if here != self.bucket or k != self._k:
            self._close()
            self.bucket, self._k = here, k
        self._block.append(seen)
        self._t = seen.t
        if len(self._block) >= BLOCK_STEPS:
            self._close()

    def look(self, t: float) -> None:
        """Has time pass to `t` without a step."""
        self._t, self.now = t, self._elapsed.at(t)

    def _close(self) -> None:
        if not self._block:
            return
        block, self._block = self._block, []
        self.now = self._elapsed.at(self._t)
        timed = [
            (seen.seconds, seen.requests)
            for seen in block
            if seen.settled and not seen.prefill and seen.seconds is not None
        ]
        if timed:
            seconds, sizes = zip(*timed, strict=True)
            self.times.add(self.bucket, sum(sizes) / len(sizes), self._k, seconds, self.now)
        self._unmerged += block
        if len(self._unmerged) >= BLOCK_STEPS:
            self._count(self._unmerged)
            self._unmerged = []
            self.shifted = self.acceptance.merge()
        self.closed = True

    def _count(self, unmerged: Sequence[StepSeen]) -> None:
        """Has the drafts of steps counted, those of one length together."""
        for verified, alike in groupby(sorted(unmerged, key=_verified), _verified):
            if verified:
                steps = list(alike)
                chances = sum([seen.drafts if seen.prefill else seen.requests for seen in steps])
                columns = zip(*[seen.accepted for seen in steps], strict=False)
                deepest = min(verified, self.k_max)
                self.acceptance.add(chances, deepest, map(sum, columns), steps=len(steps))
