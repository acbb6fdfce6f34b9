"""What the steps so far have taught: acceptance by position, step times by batch size and k."""

from __future__ import annotations

from specdeck.engine.policy.acceptance import Acceptance
from specdeck.engine.policy.batches import bucket
from specdeck.engine.policy.elapsed import Elapsed
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.policy.step_times import StepTimes

BLOCK_STEPS = 8
"""Steps that are taken in together, so that a step itself costs next to nothing."""


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
        self._steps = 0
        self._unmerged = 0
        """Steps whose acceptance is still to be taken in: it belongs to no k in particular."""
        self._sizes = 0
        self._seconds: list[float] = []
        self._t = 0.0

    def add(self, seen: StepSeen) -> None:
        """Learns from a step."""
        here, k = bucket(seen.requests), seen.k
        self.closed = self.shifted = False
        if here != self.bucket or k != self._k:
            self._close()
            self.bucket, self._k = here, k
        verified = seen.verified
        if verified:
            chances = seen.drafts if seen.prefill else seen.requests
            self.acceptance.add(chances, min(verified, self.k_max), seen.accepted)
        if seen.settled and not seen.prefill and seen.seconds is not None:
            self._seconds.append(seen.seconds)
            self._sizes += seen.requests
        self._steps += 1
        self._t = seen.t
        if self._steps >= BLOCK_STEPS:
            self._close()

    def look(self, t: float) -> None:
        """Has time pass to `t` without a step."""
        self._t, self.now = t, self._elapsed.at(t)

    def _close(self) -> None:
        if not self._steps:
            return
        self._unmerged += self._steps
        self._steps = 0
        self.now = self._elapsed.at(self._t)
        if timed := len(self._seconds):
            mean = self._sizes / timed
            self.times.add(self.bucket, mean, self._k, self._seconds, self.now)
            self._seconds, self._sizes = [], 0
        if self._unmerged >= BLOCK_STEPS:
            self._unmerged = 0
            self.shifted = self.acceptance.merge()
        self.closed = True
