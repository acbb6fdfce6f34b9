"""A change on lease: knobs that are taken back when nobody renews them in time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from specdeck.engine.plugin.steering import Knobs, Steering, Turn
from specdeck.engine.protocol.messages import Change, Lease, Origin

logger = logging.getLogger("vllm.specdeck")

_AGAIN_S = 1.0
"""Seconds until a lease that could not be taken back is tried again."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Knobs on lease: when they are taken back, and to what."""

    ends: float
    """By the control's clock, seconds."""
    back: Knobs
    who: str | None = None
    """Whose it is; None where that is not known."""
    origin: Origin = "operator"
    tries: int = 3
    """To take it back, before it is given up."""

    def after_try(self, now: float) -> Self | None:
        """The lease should taking it back fail at `now`; None when this is the last try."""
        if self.tries <= 1:
            logger.error("specdeck tries for the last time to revert a lease")
            return None
        return replace(self, ends=now + _AGAIN_S, tries=self.tries - 1)


class Leases:
    """One lease at a time: lends knobs, renews them, and takes them back."""

    def __init__(self, steering: Steering, turn: Turn, *, clock: Callable[[], float]) -> None:
        """`turn` makes knobs the engine's and remembers who did."""
        self._steering = steering
        self._turn = turn
        self._clock = clock
        self.running: LeaseRecord | None = None
        """The lease in force."""

    def lend(self, change: Change, before: Knobs) -> tuple[str, ...]:
        """Begins a lease, or carries on the one in force beside a change that is to stay.

        `before` was in force ahead of `change`, which is made already.
        """
        lease, now = self.running, self._clock()
        if change.lease_s:
            back = lease.back if lease else before
            self.running = LeaseRecord(now + change.lease_s, back, change.who, change.origin)
            if lease is not None and back.with_change(change) != self._steering.knobs:
                left = max(0.0, lease.ends - now)
                return (
                    "a lease was running: what it changed is reverted with this in"
                    f" {change.lease_s:.0f} s, not in {left:.0f} s",
                )
        elif lease is not None:
            back = lease.back.with_change(change)
            self.running = None if back == self._steering.knobs else replace(lease, back=back)
            if self.running is not None:
                left = lease.ends - now
                return (f"a lease is running: what it changed is reverted in {left:.0f} s",)
        return ()

    def renew(self, seconds: float) -> None:
        """Has the lease in force end so many seconds from now."""
        if self.running is not None:
            self.running = replace(self.running, ends=self._clock() + seconds)

    def tick(self) -> None:
        """Takes back what has run out."""
        lease = self.running
        if lease is not None and self._clock() >= lease.ends:
            reason = "the lease ran out"
            self.take_back(lease.back, who="specdeck", reason=reason, origin="lease")

    def take_back(
        self,
        knobs: Knobs,
        *,
        who: str,
        reason: str | None,
        origin: Origin,
        before: Knobs | None = None,
    ) -> tuple[str, ...]:
        """Turns to `knobs`, which a lease or a trial holds; tried again should that fail."""
        now = self._clock()
        self.running = (self.running or LeaseRecord(now, knobs)).after_try(now)
        notices = self._turn(knobs, who=who, reason=reason, origin=origin, before=before)
        self.running = None
        return notices

    def forget_policy(self) -> None:
        """No policy can be gone back to any more: the lease ends with a fixed k."""
        if (lease := self.running) is not None:
            self.running = replace(lease, back=replace(lease.back, policy="fixed"))

    def describe(self) -> Lease | None:
        """What of the lease is left, for the wire."""
        lease = self.running
        if lease is None:
            return None
        left = max(0.0, lease.ends - self._clock())
        return Lease(seconds_left=left, k=lease.back.k, mode=lease.back.mode)
