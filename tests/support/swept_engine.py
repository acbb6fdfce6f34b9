"""An engine that is swept: a step every 10 ms of its own time, and a lease as the plugin has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from specdeck.engine.errors import Conflict, UsageError
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import (
    AppliedChange,
    Capability,
    Change,
    EngineState,
    LastChange,
    Lease,
    Origin,
)

ABLE = (Capability("live_k", True), Capability("target_only", True))
RATES = {0: 400.0, 1: 520.0, 2: 640.0, 3: 800.0}
"""Tokens per second by k; beyond 3 as at 3."""


class SweptEngine:
    """Makes a step every 10 ms of its own time, and holds a lease as the plugin does."""

    def __init__(self, state: EngineState) -> None:
        self.now, self.step = 0.0, state.step
        self.first = replace(state, capabilities=ABLE)
        self.here = self.first
        self.ends: float | None = None
        self.back = self.first
        """Has the knobs that the lease goes back to."""
        self.keeps_knobs = False
        """Whether the end of a lease takes nothing back."""
        self.changes: list[Change] = []
        self.idle = False
        self.found: dict[str, Any] = {}
        """What its state shows whatever is done to it."""
        self.knows_cancel = True
        self.drafts_always: int | None = None
        """Tokens of every draft, whatever k its steps tell; None drafts by k."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called at every look at the steps."""
        self._random = Random(3)
        self._k_of: dict[int, int] = {}

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        for _ in range(round(seconds / 0.01)):
            self.now += 0.01
            self._expire()
            if not self.idle:
                self.step += 1
                self._k_of[self.step] = self.here.k

    def _expire(self) -> None:
        if self.ends is not None and self.now >= self.ends:
            self.ends, back = None, self.back
            if not self.keeps_knobs:
                self._turn(back.k_set, "specdeck", "the lease ran out", "lease")
                self.here = replace(self.here, mode=back.mode, policy=back.policy)

    def turned(self, k: int, who: str, reason: str) -> None:
        """Somebody turns k for good, which the end of a lease does not take back."""
        self._turn(k, who, reason, "operator")
        self.back = replace(self.back, k=k, k_set=k, policy="fixed")
        if (self.back.mode, self.back.policy) == (self.here.mode, self.here.policy):
            self.ends = None

    def _turn(self, k: int, who: str, reason: str, origin: Origin) -> None:
        last = LastChange(0.0, who, reason, {"k": self.here.k_set}, {"k": k}, origin)
        self.here = replace(
            self.here, k=k, k_set=k, version=self.here.version + 1, last_change=last
        )

    async def state(self) -> EngineState:
        self._expire()
        back = (self.back.k_set, self.back.mode)
        left = None if self.ends is None else Lease(self.ends - self.now, *back)
        return replace(self.here, **{"step": self.step, "lease": left, **self.found})

    async def facts(self) -> dict[str, Any]:
        return {"facts": {"config": {"scheduler": {"max_num_seqs": 32}}}}

    async def steps(self, since: int) -> tuple[Step, ...]:
        self.meanwhile()
        return tuple(self._step(n, k) for n, k in self._k_of.items() if n > since)

    def _step(self, number: int, k: int) -> Step:
        rate = RATES[min(k, 3)] * (1 + self._random.gauss(0, 0.02))
        length = k if self.drafts_always is None else self.drafts_always
        drafts = 4 if length else 0
        drafted = drafts * length
        return Step(number, number / 100, 4, 4 + drafted, k, drafts, drafted, drafts,
                    seconds=0.01, committed=round(rate / 100))  # fmt: skip

    async def put(self, change: Change) -> AppliedChange:
        self._expire()
        if change.expect_version != self.here.version:
            raise Conflict("the engine is at another version")
        if change.cancel and not self.knows_cancel:
            raise UsageError("unknown key 'cancel'")
        if (change.cancel or change.renew) and self.ends is None:
            raise Conflict("the lease has run out")
        self.changes.append(change)
        if change.cancel or change.renew:
            self.ends = self.now + (change.lease_s or 0.0)
            if change.cancel:
                self._expire()
            return AppliedChange({}, {}, self.here.version, self.step)
        assert change.k is not None
        own = self.here
        if change.policy == "fixed" and self.here.policy != "fixed":
            self.here = replace(self.here, breaker="closed")  # one of the policy ends with it
        if change.policy or change.mode:
            self.here = replace(
                self.here, policy=change.policy or self.here.policy,
                mode=change.mode or self.here.mode,
            )  # fmt: skip
        if self.ends is None:
            self.back = own
        self._turn(change.k, change.who or "", change.reason or "", change.origin)
        self.ends = self.now + (change.lease_s or 0.0)
        return AppliedChange({}, change.knobs(), self.here.version, self.step)
