"""A change on trial: measured before and after, then kept or taken back without being asked.

    baseline ──▶ changed ──▶ kept | reverted
        └── lease lost, cancelled, no traffic ──▶ reverted (or abandoned, if never applied)

It runs in the engine, so it ends as it should when nobody is looking any more.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean
from typing import Literal, NamedTuple

from specdeck.engine.policy.intervals import change
from specdeck.engine.policy.parameters import TrialParameters
from specdeck.engine.policy.step import Elapsed, Step
from specdeck.engine.protocol.tuning import Phase, TrialComparison

Action = Literal["apply", "keep", "revert", "abandon"]

_PATIENCE = 1.5
_PATIENCE_S = 10.0
"""A trial may take so many times its seconds, and so many more, before it gives up for want
of work to measure."""
_GRAIN_S = 0.05
_REMEMBERED = 4000
_FRESH_S = 180.0
"""Work that is older says little of the present load."""


class _Block(NamedTuple):
    """A stretch of work."""

    seconds: float
    waited: float
    """Seconds summed over the requests that waited for them."""
    committed: int


class Work:
    """The latest stretches of work under one setting, so that a trial need not wait for them.

    >>> work = Work()
    >>> for step in range(40):
    ...     work.add(Step(step, step * 0.1, 2, 8, 3, 2, 6, 2, 0.1, 4))
    >>> round(sum(block.seconds for block in work.latest(60.0)), 1)
    4.0
    """

    def __init__(self) -> None:
        self._elapsed = Elapsed()
        self._blocks: deque[tuple[float, _Block]] = deque(maxlen=_REMEMBERED)
        self._clear()

    def _clear(self) -> None:
        self._busy = self._waited = 0.0
        self._committed = 0

    def begin(self) -> None:
        """Forgets what was: another setting is in force."""
        self._blocks.clear()
        self._clear()

    def look(self, t: float) -> None:
        """Has time pass to `t` without a step."""
        self._elapsed.at(t)

    def add(self, step: Step) -> None:
        """Counts a step."""
        seconds = step.seconds
        if seconds is None:
            return
        self._busy += seconds
        self._waited += seconds * step.requests
        self._committed += step.committed
        if self._busy >= _GRAIN_S:
            block = _Block(self._busy, self._waited, self._committed)
            self._blocks.append((self._elapsed.at(step.t), block))
            self._clear()

    def latest(self, seconds: float) -> list[_Block]:
        """The last `seconds` of work, oldest first, of the last few minutes."""
        found: list[_Block] = []
        now = self._elapsed.seconds
        for t, block in reversed(self._blocks):
            if seconds <= 0 or now - t > _FRESH_S:
                break
            seconds -= block.seconds
            found.append(block)
        return found[::-1]


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

    def add(self, step: Step) -> None:
        seconds = step.seconds
        if seconds is not None:
            self.take(_Block(seconds, seconds * step.requests, step.committed))

    def take(self, block: _Block) -> None:
        self.seconds += block.seconds
        self._busy += block.seconds
        self._waited += block.waited
        self._committed += block.committed
        if self._busy >= self._block_s and self._committed:
            self.tokens_per_second.append(self._committed / self._busy)
            self.seconds_per_token.append(self._waited / self._committed)
            self._clear()


class Trial:
    """One trial; every method answers what the controller must do at once, or None."""

    def __init__(
        self,
        parameters: TrialParameters,
        *,
        t: float,
        lease_s: float | None,
        work: Work | None = None,
    ) -> None:
        """`work` is what was measured of the present setting already."""
        self.parameters = parameters
        self.state: Phase = "baseline"
        self.comparison: TrialComparison | None = None
        self.reason: str | None = None
        self._elapsed = Elapsed()
        self._elapsed.at(t)
        self._before = _Blocks(parameters.block_s)
        for block in work.latest(parameters.baseline_s) if work is not None else ():
            self._before.take(block)
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

    def step(self, step: Step) -> Action | None:
        """Counts a step."""
        if self.over:
            return None
        if self.state == "baseline":
            self._before.add(step)
            return self.begin()
        if self._settling > 0:
            self._settling -= step.seconds or 0.0
            return None
        self._after.add(step)
        return self._conclude() if self._after.seconds >= self.parameters.seconds else None

    def cancel(self, reason: str) -> Action | None:
        """Takes the change back now."""
        return None if self.over else self._end(reason)

    @property
    def seconds_left(self) -> float | None:
        """Seconds of work still to be measured in this phase; None when it is over."""
        if self.over:
            return None
        if self.state == "baseline":
            return max(0.0, self.parameters.baseline_s - self._before.seconds)
        return max(0.0, self._settling + self.parameters.seconds - self._after.seconds)

    @property
    def lease_left_s(self) -> float | None:
        """Seconds until it takes itself back unless it is renewed; None without a lease."""
        if self._lease_ends is None or self.over:
            return None
        return max(0.0, self._lease_ends - self._elapsed.seconds)

    @property
    def ready(self) -> bool:
        """Whether the time before the change is measured, so that it can be made at once."""
        return self.state == "baseline" and self._before.seconds >= self.parameters.baseline_s

    def begin(self) -> Action | None:
        """The change at once, if what was measured already is enough to compare with."""
        if not self.ready:
            return None
        self.state = "changed"
        return "apply"

    def _conclude(self) -> Action:
        confidence = self.parameters.confidence
        before, after = self._before, self._after
        tokens = change(before.tokens_per_second, after.tokens_per_second, confidence=confidence)
        wait = change(before.seconds_per_token, after.seconds_per_token, confidence=confidence)
        if tokens is None or wait is None:
            return self._end("too little traffic to compare")
        # More tokens per second decide; where they do not, the wait for a token does.
        sign = tokens.sign or -wait.sign
        self.comparison = TrialComparison(
            "better" if sign > 0 else "worse" if sign < 0 else "inconclusive",
            tokens,
            wait,
            before_tokens_per_second=fmean(before.tokens_per_second),
            after_tokens_per_second=fmean(after.tokens_per_second),
            before_ms_per_token=fmean(before.seconds_per_token) * 1e3,
            after_ms_per_token=fmean(after.seconds_per_token) * 1e3,
        )
        if not (sign > 0 or (not sign and self.parameters.keep_inconclusive)):
            return self._end(str(self.comparison))
        self.state, self.reason = "kept", str(self.comparison)
        return "keep"

    def _end(self, reason: str) -> Action:
        applied, self.reason = self.state == "changed", reason
        self.state = "reverted" if applied else "abandoned"
        return "revert" if applied else "abandon"
