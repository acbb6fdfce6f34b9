"""A change on trial: measured before and after, then kept or taken back without being asked.

    baseline ──▶ changed ──▶ kept | reverted
        └── lease lost, cancelled, no traffic ──▶ reverted (or abandoned, if never applied)

It runs in the engine, so it ends as it should when nobody is looking any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdeck.engine.policy.elapsed import Elapsed
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.policy.parameters import Trial as Parameters
from specdeck.engine.tuning.intervals import Change, change

State = Literal["baseline", "changed", "kept", "reverted", "abandoned"]
Action = Literal["apply", "keep", "revert", "abandon"]

_LEAP_S = 300.0
_PATIENCE = 3.0
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the change did, against the noise of the time before it."""

    tokens_per_second: Change
    """Committed tokens of all requests in a second of work."""
    seconds_per_token: Change
    """Time that a request waits for one token, on average."""

    @property
    def verdict(self) -> Literal["better", "worse", "inconclusive"]:
        """More tokens per second decide; where they do not, the wait for a token does."""
        sign = self.tokens_per_second.sign or -self.seconds_per_token.sign
        return "better" if sign > 0 else "worse" if sign < 0 else "inconclusive"

    def __str__(self) -> str:
        """The comparison as a line."""
        return (
            f"{self.verdict}: tokens/s {self.tokens_per_second}, "
            f"time per token {self.seconds_per_token}"
        )


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial, for a screen."""

    state: State
    blocks_before: int
    blocks_after: int
    share: float
    """How much of the present window is over, 0 to 1."""
    lease_s: float | None
    """Seconds until the trial takes itself back unless it is renewed; None without a lease."""
    comparison: Comparison | None
    reason: str | None
    """Why it ended."""


class _Blocks:
    """Rates of successive stretches of work of one length."""

    def __init__(self, block_s: float) -> None:
        self._block_s = block_s
        self.tokens_per_second: list[float] = []
        self.seconds_per_token: list[float] = []
        self.seconds = 0.0
        self._clear()

    def _clear(self) -> None:
        self._busy = self._waited = 0.0
        self._committed = 0

    def add(self, seen: StepSeen) -> None:
        if seen.seconds is None:
            return
        self.seconds += seen.seconds
        self._busy += seen.seconds
        self._waited += seen.seconds * seen.requests
        self._committed += seen.committed
        if self._busy >= self._block_s and self._committed:
            self.tokens_per_second.append(self._committed / self._busy)
            self.seconds_per_token.append(self._waited / self._committed)
            self._clear()


class Trial:
    """One trial; every method answers what the controller must do at once, or None."""

    def __init__(self, parameters: Parameters, *, t: float, lease_s: float | None) -> None:
        self.parameters = parameters
        self.state: State = "baseline"
        self.comparison: Comparison | None = None
        self.reason: str | None = None
        self._elapsed = Elapsed(_LEAP_S)
        self._elapsed.at(t)
        self._before = _Blocks(parameters.block_s)
        self._after = _Blocks(parameters.block_s)
        self._settling = parameters.settle_s
        self._lease_ends = lease_s
        self._gives_up = _PATIENCE * (parameters.baseline_s + parameters.seconds) + _PATIENCE_S

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("kept", "reverted", "abandoned")

    def renew(self, t: float, lease_s: float) -> None:
        """Extends the lease to `lease_s` from this moment."""
        if not self.over:
            self._lease_ends = self._elapsed.at(t) + lease_s

    def tick(self, t: float) -> Action | None:
        """Looks at the lease; called before every step and at every request of the state."""
        now = self._elapsed.at(t)
        if self.over:
            return None
        if self._lease_ends is not None and now >= self._lease_ends:
            return self._end("the lease was not renewed")
        if now >= self._gives_up:
            return self._end("too little traffic to compare")
        return None

    def step(self, seen: StepSeen) -> Action | None:
        """Counts a step."""
        if self.over:
            return None
        if self.state == "baseline":
            self._before.add(seen)
            if self._before.seconds < self.parameters.baseline_s:
                return None
            self.state = "changed"
            return "apply"
        if self._settling > 0:
            self._settling -= seen.seconds or 0.0
            return None
        self._after.add(seen)
        return self._conclude() if self._after.seconds >= self.parameters.seconds else None

    def cancel(self, reason: str) -> Action | None:
        """Takes the change back now."""
        return None if self.over else self._end(reason)

    def view(self) -> TrialView:
        """What there is to show."""
        part, whole = (
            (self._before, self.parameters.baseline_s)
            if self.state == "baseline"
            else (self._after, self.parameters.seconds)
        )
        left = None if self._lease_ends is None else self._lease_ends - self._elapsed.seconds
        return TrialView(
            self.state,
            len(self._before.tokens_per_second),
            len(self._after.tokens_per_second),
            1.0 if self.over else min(1.0, part.seconds / whole),
            None if left is None or self.over else max(0.0, left),
            self.comparison,
            self.reason,
        )

    def _conclude(self) -> Action:
        confidence = self.parameters.confidence
        before, after = self._before, self._after
        tokens = change(before.tokens_per_second, after.tokens_per_second, confidence=confidence)
        wait = change(before.seconds_per_token, after.seconds_per_token, confidence=confidence)
        if tokens is None or wait is None:
            return self._end("too little traffic to compare")
        self.comparison = Comparison(tokens, wait)
        verdict = self.comparison.verdict
        keep = verdict == "better" or (
            verdict == "inconclusive" and self.parameters.keep_inconclusive
        )
        if not keep:
            return self._end(str(self.comparison))
        self.state, self.reason = "kept", str(self.comparison)
        return "keep"

    def _end(self, reason: str) -> Action:
        applied, self.reason = self.state == "changed", reason
        self.state = "reverted" if applied else "abandoned"
        return "revert" if applied else "abandon"
