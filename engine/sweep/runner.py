"""A sweep on a live engine: k by k under one lease, and the engine left as it was found.

The lease is the engine's: a sweep that is killed stops renewing it, and the engine takes
k, mode and policy back by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from specdeck.engine.control.observe import STEPS_IN_FLIGHT
from specdeck.engine.control.protocol import Applied, Change, EngineState
from specdeck.engine.errors import Conflict, EngineError, SpecdeckError, Unsupported, UsageError
from specdeck.engine.sweep.checks import idle, kept, moved, refuse
from specdeck.engine.sweep.patient import PAUSED, Patient, Steered
from specdeck.engine.sweep.plan import Plan
from specdeck.engine.tuning.stay import Stay
from specdeck.engine.tuning.sweep import order

POLL_S = 0.25
PATIENCE_S = 10.0
"""How long an engine without traffic is waited for."""
RESTORE_S = 8.0
"""How long giving k back may take, before it is left to the lease."""
_RELEASE_S = 0.001
_TICKS = 20

Knobs = dict[str, int | str]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is."""

    done: int
    """Visits."""
    of: int
    k: int | None
    """The k that is visited; None while traffic is waited for."""
    seconds_left: float
    first: bool = False
    """Whether nothing was told before it."""


class Sweep:
    """One sweep; `stays` and `after` are there for whoever looks, however it ended."""

    def __init__(
        self,
        engine: Steered,
        plan: Plan,
        *,
        who: str,
        reason: str = "sweep",
        heard: Callable[[Progress], None] = lambda progress: None,
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.plan = plan
        self.found: EngineState | None = None
        """The engine as it was found; None before it was asked."""
        self.facts: dict[str, Any] = {}
        """The engine's, as `GET facts` has them."""
        self.stays: list[Stay] = []
        self.after: Knobs | None = None
        """Its knobs after all; None where they could not be read."""
        self.notices: list[str] = []
        self._engine = Patient(engine, self._until, paused=lambda: self._notice(PAUSED),
                               clock=clock, sleep=sleep)  # fmt: skip
        self.who = who
        self.reason = reason
        self.heard = heard
        self._told = False
        self._random = random or Random()
        self._clock = clock
        self._sleep = sleep
        self._version = -1
        """Of our last change, or as it was found."""
        self._ours = False
        """Whether the knobs may be as we have turned them: not before the first change, and
        not once somebody else has steered."""
        self._renewed = 0.0
        self.steering = False
        """Whether k is or was turned: there was traffic to measure."""

    @property
    def before(self) -> Knobs | None:
        """The knobs as they were found."""
        return None if self.found is None else knobs(self.found)

    @property
    def restored(self) -> bool | None:
        """Whether the engine is as it was found; None when that is not known."""
        return None if self.after is None else self.after == self.before

    async def run(self) -> None:
        """Visits every k in every round; raises EngineError when it cannot go on.

        However it ends, cancelled included, the knobs are given back first, unless
        somebody else has turned them meanwhile.
        """
        state = self.found = await self._engine.state()
        refuse(state, self.plan)
        self._version = state.version
        self.facts = await self._engine.facts()
        await self._traffic(state)
        self.steering = True
        try:
            for round, k in order(self.plan.ks, self.plan.rounds, self._random):
                self._tell(k)
                self.stays.append(await self._stay(k, round))
            self._tell(None)
        finally:
            await self._restore()

    def _tell(self, k: int | None) -> None:
        left = self.plan.visits - len(self.stays)
        each = self.plan.settle_s + self.plan.measure_s
        first, self._told = not self._told, True
        self.heard(Progress(len(self.stays), self.plan.visits, k, left * each, first))

    def _notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)

    def _until(self) -> float:
        """How long a pausing engine is asked: then it has taken k back, if it was turned."""
        return (self._renewed if self._ours else self._clock()) + self.plan.lease_s

    async def _traffic(self, state: EngineState) -> None:
        """Waits for the first token, before anything is changed."""
        since, began = state.step, self._clock()
        while True:
            steps = await self._engine.steps(since)
            if any(step.committed for step in steps):
                return
            if steps and all(step.committed is None for step in steps):
                raise Unsupported(
                    "the engine's specdeck plugin does not time its steps",
                    remedy="update specdeck there",
                )
            if self._clock() - began >= PATIENCE_S:
                raise idle(PATIENCE_S)
            self._tell(None)
            await self._sleep(POLL_S)

    async def _stay(self, k: int, round: int) -> Stay:
        applied = await self._turn(k)
        for text in applied.notices:
            self._notice(text)
        await self._sleep(self.plan.settle_s)
        since = applied.step + STEPS_IN_FLIGHT
        since = max((step.step for step in await self._engine.steps(since)), default=since)
        stay, began = Stay(k, round), self._clock()
        while stay.work.seconds < self.plan.measure_s:
            if self._clock() - began >= self.plan.measure_s + PATIENCE_S:
                break
            await self._sleep(min(POLL_S, self.plan.measure_s))
            for step in await self._engine.steps(since):
                since = step.step
                stay.add(step)
            await self._renew()
        await self._check(stay)
        return stay

    async def _turn(self, k: int) -> Applied:
        assert self.found is not None
        first = not self._ours
        speculate = first and self.found.mode == "target-only"
        change = Change(
            k=k,
            mode="speculate" if speculate else None,
            policy="fixed" if first and self.found.policy != "fixed" else None,
            lease_s=self.plan.lease_s,
            reason=self.reason,
            who=self.who,
            expect_version=self._version,
            origin="sweep",
        )
        self._renewed, self._ours = self._clock(), True
        try:
            applied = await self._engine.put(change)
        except Conflict as error:
            raise await self._moved(error) from None
        self._version = applied.version
        return applied

    async def _renew(self) -> None:
        """Extends the lease when a third of it has passed."""
        if self._clock() - self._renewed < self.plan.lease_s / 3:
            return
        self._renewed = self._clock()
        renewal = Change(
            renew=True, lease_s=self.plan.lease_s, expect_version=self._version, origin="sweep"
        )
        try:
            await self._engine.put(renewal)
        except Conflict as error:
            raise await self._moved(error) from None

    async def _check(self, stay: Stay) -> None:
        """Raises unless the stay was one: nobody else steered, and there was work."""
        assert self.found is not None
        state = await self._engine.state()
        if state.instance != self.found.instance:
            raise self._restarted()
        if state.version != self._version:
            self._ours = False
            raise moved(state)
        lease = state.lease
        if lease is None or (lease.k, lease.mode) != (self.found.k_set, self.found.mode):
            self._ours = False
            raise kept(state)
        if stay.visit() is None or stay.work.seconds < self.plan.measure_s / 4:
            raise idle(self.plan.measure_s + PATIENCE_S)
        if stay.obeyed < stay.steps / 2:
            why = f" (breaker {state.breaker})" if state.breaker != "closed" else ""
            raise EngineError(f"the engine does not draft the k={stay.k} that was asked for{why}")

    async def _moved(self, error: Conflict) -> EngineError:
        """Who turned a knob meanwhile, or that the engine is another one by now."""
        assert self.found is not None
        self._ours = False
        try:
            state = await self._engine.state()
        except SpecdeckError:
            return error
        return self._restarted() if state.instance != self.found.instance else moved(state)

    def _restarted(self) -> EngineError:
        self._ours = False
        return EngineError("the engine was started anew in mid-sweep", remedy="sweep it again")

    async def _restore(self) -> None:
        """Gives the knobs back at once by letting the lease end."""
        try:
            async with asyncio.timeout(RESTORE_S):
                await self._give_back()
        except (SpecdeckError, TimeoutError):
            self.notices.append(
                f"the engine could not be asked to take k back: it does so by itself within "
                f"{self.plan.lease_s:.0f} s"
            )

    async def _give_back(self) -> None:
        state = await self._engine.state()
        if self._ours and self._turned_last(state):
            await self._release(state.version)
            for _ in range(_TICKS):
                state = await self._engine.state()
                if state.lease is None:
                    break
                await self._sleep(POLL_S / 5)
        self.after = knobs(state)

    def _turned_last(self, state: EngineState) -> bool:
        """Whether the lease is ours; a request that was cut short may have been fulfilled."""
        assert self.found is not None
        last = state.last_change
        ours = last is not None and (last.who, last.reason) == (self.who, self.reason)
        count = state.version - self._version
        same = count == 0 or (count == 1 and ours)
        return same and state.instance == self.found.instance and state.lease is not None

    async def _release(self, version: int) -> None:
        """Ends the lease now."""
        why = f"end of {self.reason}"
        try:
            cancel = Change(
                cancel=True, who=self.who, reason=why, expect_version=version, origin="sweep"
            )
            await self._engine.put(cancel)
        except UsageError:  # a plugin that cannot cancel: a lease may be short as well
            await self._engine.put(Change(renew=True, lease_s=_RELEASE_S, expect_version=version))


def knobs(state: EngineState) -> Knobs:
    """What a sweep must leave as it was.

    k is the operator's own, which is in force again when target-only or a policy ends.
    """
    return {
        "k": state.k_set,
        "mode": state.mode,
        "policy": state.policy,
        "fallback": state.fallback,
    }
