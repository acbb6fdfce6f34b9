"""A sweep on a live engine: k by k under one lease, and the engine left as it was found.

The lease is the engine's: a sweep that is killed stops renewing it, and the engine takes
k, mode and policy back by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

from specdeck.engine.client.retry import Retry
from specdeck.engine.errors import (
    Conflict,
    EngineError,
    SpecdeckError,
    Stalled,
    Unauthorized,
    Unreachable,
    Unsupported,
    UsageError,
)
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import STEPS_IN_FLIGHT, AppliedChange, Change, EngineState
from specdeck.engine.sweep.analysis import (
    KnobValues,
    SweepOutcome,
    VisitSums,
    analyse,
    max_num_seqs,
)
from specdeck.engine.sweep.ending import Ending, Left
from specdeck.engine.sweep.plan import LEASE_S, Plan
from specdeck.engine.text import format_changes

POLL_S = 0.25
PATIENCE_S = 10.0
"""How long an engine without traffic is waited for."""
RESTORE_S = LEASE_S + 0.5
"""How long giving k back may take: the engine does so by itself once the lease is over, which is
waited for where the engine cannot be asked."""
PAUSED = "the engine core paused, and was asked again"
"""The notice of a sweep that went on after a pause."""
_MOST_NOTICES = 20
_RELEASE_S = 0.001
_LATE_S = 5.0
"""How long after it was asked for a change may still be made: the engine refuses what it gets to
later."""

_T = TypeVar("_T")


class SteeredEngine(Protocol):
    """What a sweep asks of an engine; a client is one."""

    async def state(self) -> EngineState:
        """The plugin's word."""

    async def steps(self, since: int) -> tuple[Step, ...]:
        """The steps after number `since`."""

    async def facts(self) -> dict[str, Any]:
        """The facts behind the fingerprint."""

    async def put(self, change: Change) -> AppliedChange:
        """The engine's word on `change`."""


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep is."""

    done: int
    """Visits."""
    of: int
    k: int | None
    """The k that is visited; None while traffic is waited for, and after the last visit."""
    seconds_left: float
    """At the pace so far, while the engine has work all the time."""


@dataclass(frozen=True, slots=True)
class WaitingForTraffic:
    """There is no traffic to measure so far; nothing is changed before there is some."""

    progress: SweepProgress


@dataclass(frozen=True, slots=True)
class Visiting:
    """A visit is about to begin: k is turned after this."""

    progress: SweepProgress


@dataclass(frozen=True, slots=True)
class VisitDone:
    """A visit was made."""

    progress: SweepProgress
    visit: VisitSums


SweepStep = WaitingForTraffic | Visiting | VisitDone


class SweepRunner:
    """One sweep; what it has found is there for whoever looks, however it ended."""

    def __init__(
        self,
        engine: SteeredEngine,
        plan: Plan,
        found: EngineState,
        *,
        who: str,
        reason: str = "sweep",
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`found` is the engine as it is now, and as it will be left."""
        self.plan = plan
        self.found = found
        self.who = who
        self.reason = reason
        self.facts: dict[str, Any] = {}
        """The engine's, as `GET facts` has them."""
        self.visited: list[VisitSums] = []
        self._began: float | None = None
        """When the first visit did, by the clock."""
        self.notices: list[str] = []
        self._engine = engine
        self._retry = Retry(plan.lease_s, longest_pause_s=POLL_S, clock=clock, sleep=sleep)
        self._random = random or Random()
        self._clock = clock
        self._sleep = sleep
        self._version = found.version
        """Of our last change, or as it was found."""
        self._ours = False
        """Whether the knobs may be as we have turned them: not before the first change, and
        not once somebody else has steered."""
        self._has_turned = False
        """Whether the engine was asked for any change."""
        self._asked_at: float | None = None
        """When a change was asked for that has not been answered; None where all are."""
        self._others = False
        """Whether somebody else was seen to steer."""
        self._final: EngineState | None = None
        """The engine at the last look at the end; None where it gave no answer."""
        self._final_error: SpecdeckError | None = None
        """What kept the engine from being given back, or looked at."""
        self._renewed = 0.0

    @property
    def ending(self) -> Ending:
        """How the engine was left, or would be at this moment."""
        if not self._has_turned:
            return Ending()
        state, left = self._final, self._left
        is_open = left in ("not_restored", "unknown")
        lease_s = max(0.0, self._renewed + self.plan.lease_s - self._clock())
        if state is not None:
            lease_s = 0.0 if state.lease is None else state.lease.seconds_left
        return Ending(
            left,
            None if state is None else state.breaker,
            self.found.breaker == "closed" and state is not None and state.breaker != "closed",
            lease_s if is_open and lease_s else None,
            self._version if state is None else state.version,
            self._final_error if is_open else None,
        )

    @property
    def _left(self) -> Left:
        state = self._final
        if state is None:
            return "unknown"
        if state.instance != self.found.instance:
            return "restarted"
        if knobs(state) == self.before:
            return "restored"
        return "changed" if self._others else "not_restored"

    @property
    def before(self) -> KnobValues:
        """The knobs as they were found."""
        return knobs(self.found)

    @property
    def after(self) -> KnobValues | None:
        """Its knobs after all; None where they could not be read."""
        return None if self._final is None else knobs(self._final)

    async def visits(self) -> AsyncGenerator[SweepStep, None]:
        """Visits every k in every round; raises EngineError when it cannot go on.

        However it ends, cancelled or closed included, the knobs are given back first, unless
        somebody else has turned them meanwhile.
        """
        self.facts = await self._answer(self._engine.facts)
        async for waiting in self._traffic():
            yield waiting
        planned, self._began = self.plan, self._clock()
        try:
            for round, k in planned.order(self._random):
                if round == self.plan.rounds:
                    self._notice(self._describe_cut(planned))
                    break
                yield Visiting(self._progress(k))
                self.visited.append(await self._visit(k, round))
                self._keep_time(planned)
                yield VisitDone(self._progress(None), self.visited[-1])
        finally:
            await self._restore()

    def outcome(
        self, url: str, *, error: SpecdeckError | None = None, interrupted: bool = False
    ) -> SweepOutcome:
        """What the sweep of the engine at `url` has come to so far."""
        return SweepOutcome(
            url=url,
            plan=self.plan,
            model=self.found.model,
            method=self.found.method,
            visits=tuple(self.visited),
            analysis=analyse(self.visited, self.plan.ks),
            max_num_seqs=max_num_seqs(self.facts),
            before=self.before,
            after=self.after,
            notices=tuple(self.notices),
            error=error,
            interrupted=interrupted,
            ending=self.ending,
        )

    def _progress(self, k: int | None) -> SweepProgress:
        done, of = len(self.visited), self.plan.visits
        return SweepProgress(done, of, k, (of - done) * self._visit_s())

    def _visit_s(self) -> float:
        """Seconds of a visit: those that were made, or as planned before the first."""
        if not self.visited or self._began is None:
            return self.plan.visit_s
        return max(self.plan.visit_s, (self._clock() - self._began) / len(self.visited))

    def _keep_time(self, planned: Plan) -> None:
        """After each round: makes as many as there is time for, at the pace so far."""
        rounds, begun = divmod(len(self.visited), len(planned.ks))
        if self._began is not None and not begun:
            self.plan = planned.fit_rounds(rounds, self._clock() - self._began)

    def _describe_cut(self, planned: Plan) -> str:
        return (
            f"a visit took {self._visit_s():.1f} s, not {planned.visit_s:.1f} s: "
            f"{self.plan.rounds} of {planned.rounds} rounds are made, so that the time is kept"
        )

    def _notice(self, text: str) -> None:
        if len(self.notices) < _MOST_NOTICES and text not in self.notices:
            self.notices.append(text)

    async def _answer(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Repeats what the engine core was too busy to answer, a change included.

        The plugin applies no change after it said that there was no answer, so a repeated one
        is made once. After the lease the engine has taken k back, if it was turned: Stalled is
        raised then.
        """

        async def ask_core() -> _T:
            try:
                return await ask()
            except Stalled:
                self._notice(PAUSED)
                raise

        until = (self._renewed if self._ours else self._clock()) + self.plan.lease_s
        return await self._retry.answer(ask_core, errors=Stalled, until=until)

    async def _state(self) -> EngineState:
        return await self._answer(self._engine.state)

    async def _steps(self, since: int) -> tuple[Step, ...]:
        return await self._answer(lambda: self._engine.steps(since))

    async def _put(self, change: Change) -> AppliedChange:
        return await self._answer(lambda: self._engine.put(change))

    async def _traffic(self) -> AsyncGenerator[WaitingForTraffic, None]:
        """Waits for the first token, before anything is changed."""
        since, began = self.found.step, self._clock()
        while True:
            steps = await self._steps(since)
            if any(step.committed for step in steps):
                return
            if self._clock() - began >= PATIENCE_S:
                raise _idle_error(PATIENCE_S)
            yield WaitingForTraffic(self._progress(None))
            await self._sleep(POLL_S)

    async def _visit(self, k: int, round: int) -> VisitSums:
        applied = await self._turn(k)
        for text in applied.notices:
            self._notice(text)
        await self._sleep(self.plan.settle_s)
        since = applied.step + STEPS_IN_FLIGHT
        before = await self._steps(since)
        since = max((step.step for step in before), default=since)
        visit, began = VisitSums(k, round), self._clock()
        while visit.work.seconds < self.plan.measure_s:
            if self._clock() - began >= self.plan.measure_s + PATIENCE_S:
                break
            await self._sleep(min(POLL_S, self.plan.measure_s))
            since = visit.add_newer(await self._steps(since), since)
            await self._renew()
        await self._check(visit)
        return visit

    async def _turn(self, k: int) -> AppliedChange:
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
        had_turned, self._has_turned = self._has_turned, True
        self._renewed = self._asked_at = self._clock()
        self._ours = True
        try:
            applied = await self._put(change)
        except (Conflict, Unauthorized, Unsupported, UsageError) as error:  # nothing was turned
            self._ours = self._has_turned = had_turned
            self._asked_at = None
            if isinstance(error, Conflict):
                raise await self._conflict(error) from None
            raise
        self._version, self._asked_at = applied.version, None
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
            await self._put(renewal)
        except Conflict as error:
            raise await self._conflict(error) from None

    async def _check(self, visit: VisitSums) -> None:
        """Raises unless nobody else steered, and there was work; leaves a visit out whose steps
        were not all of its k."""
        state = await self._state()
        if state.instance != self.found.instance:
            raise self._restart_error()
        if state.version != self._version:
            self._ours = False
            self._note_others(state)
            raise _change_error(state)
        lease = state.lease
        if lease is None and self._clock() >= self._renewed + self.plan.lease_s:
            self._ours = False  # taken back to what was in force anyway, which is no version
            raise _lease_error()
        if lease is None or (lease.k, lease.mode) != (self.found.k_set, self.found.mode):
            self._ours, self._others = False, True
            raise _kept_k_error(state)
        if visit.visit() is None or visit.work.seconds < self.plan.measure_s / 4:
            raise _idle_error(self.plan.measure_s + PATIENCE_S)
        if not visit.is_obeyed:
            raise EngineError(
                f"the engine does not draft the k={visit.k} that was asked for"
                f"{_describe_disobedience(visit, state)}"
            )
        if state.breaker != "closed":
            why = f": {state.policy_reason}" if state.policy_reason else ""
            raise EngineError(
                f"the breaker became {state.breaker} in a visit of k={visit.k}{why}",
                remedy="reset it with breaker=closed, and sweep again",
            )
        if visit.is_mixed:
            visit.left_out = "other_k"
            others = visit.steps - visit.obeyed
            self._notice(
                f"a visit of k={visit.k} is left out: {others} of {visit.steps} steps were to "
                "draft another k"
            )
        if visit.k and not visit.drafts:
            self._notice(f"nothing was drafted in a visit of k={visit.k}")

    async def _conflict(self, error: Conflict) -> EngineError:
        """Who turned a knob meanwhile, or that the engine is another one by now."""
        self._ours = False
        try:
            state = await self._state()
        except SpecdeckError:
            return error
        if state.instance != self.found.instance:
            return self._restart_error()
        if self._has_turned and state.version == self._version and state.lease is None:
            return _lease_error()
        last = state.last_change
        self._others |= last is None or last.origin != "lease"  # whoever it is, we were refused
        return _change_error(state)

    def _restart_error(self) -> EngineError:
        self._ours = False
        return EngineError("the engine was restarted during the sweep", remedy="sweep it again")

    async def _restore(self) -> None:
        """Gives the knobs back at once by letting the lease end, and looks whether they are."""
        try:
            async with asyncio.timeout(RESTORE_S):
                await self._give_back()
        except SpecdeckError as error:
            self._final_error = self._final_error or error
        except TimeoutError:
            self._final_error = self._final_error or Unreachable("the engine gives no answer")

    async def _give_back(self) -> None:
        """Looks until the engine is given back, or nothing more can come of it."""
        ends, is_asked = self._clock(), False
        if self._has_turned:
            ends += RESTORE_S
        while True:
            state = await self._look(ends)
            self._note_others(state)
            if not is_asked and self._ours and self._turned_last(state):
                is_asked = True
                try:
                    await self._release(state.version)
                except SpecdeckError as error:
                    self._final_error = error
                continue
            if not self._is_pending(state) or self._clock() >= ends:
                return
            await self._sleep(POLL_S / 5)

    async def _look(self, ends: float) -> EngineState:
        """The engine's state; one that gives no answer is asked again until `ends`."""
        while True:
            try:
                self._final = await self._engine.state()
            except Unreachable:
                self._final = None
                if self._clock() >= ends:
                    raise
                await self._sleep(POLL_S)
            else:
                return self._final

    def _is_pending(self, state: EngineState) -> bool:
        """Whether a lease that may be the sweep's goes on, or a change may still be made."""
        now = self._clock()
        if not self._has_turned or state.instance != self.found.instance:
            return False
        if state.lease is not None:
            return state.lease.seconds_left <= self._renewed + self.plan.lease_s - now + 1.0
        is_late = self._asked_at is not None and now < self._asked_at + _LATE_S
        return is_late and state.version == self._version

    def _note_others(self, state: EngineState) -> None:
        """Keeps in mind that the last change was somebody else's."""
        last = state.last_change
        if last is None or state.version == self._version:
            return
        is_ours = last.who == self.who and last.reason in (self.reason, self._end_reason)
        if not is_ours and last.origin != "lease":
            self._others = True

    def _turned_last(self, state: EngineState) -> bool:
        """Whether the lease is ours; a request that was cut short may have been fulfilled."""
        last = state.last_change
        ours = last is not None and (last.who, last.reason) == (self.who, self.reason)
        count = state.version - self._version
        same = count == 0 or (count == 1 and ours)
        return same and state.instance == self.found.instance and state.lease is not None

    @property
    def _end_reason(self) -> str:
        return f"end of {self.reason}"

    async def _release(self, version: int) -> None:
        """Ends the lease now."""
        cancel = Change(
            cancel=True,
            who=self.who,
            reason=self._end_reason,
            expect_version=version,
            origin="sweep",
        )
        try:
            await self._put(cancel)
        except UsageError:  # a plugin that cannot cancel: a lease may be short as well
            await self._put(Change(renew=True, lease_s=_RELEASE_S, expect_version=version))


def knobs(state: EngineState) -> KnobValues:
    """What a sweep must leave as it was.

    k is the operator's own, which is in force again when target-only or a policy ends.
    """
    return {
        "k": state.k_set,
        "mode": state.mode,
        "policy": state.policy,
        "fallback": state.fallback,
    }


def _describe_disobedience(visit: VisitSums, state: EngineState) -> str:
    """What is known of it, in brackets; empty where nothing is."""
    if visit.is_contradicted:
        return f" (its steps drafted {visit.observed_k:.1f} tokens a draft)"
    return f" (breaker {state.breaker})" if state.breaker != "closed" else ""


def _idle_error(seconds: float) -> EngineError:
    """No traffic, so nothing to measure."""
    return EngineError(
        f"no traffic: the engine generated next to nothing in {seconds:.0f} s",
        remedy="sweep it while it serves, or put load on it with `specdeck load`",
    )


def _change_error(state: EngineState) -> Conflict:
    """Who turned what, so that the sweep cannot go on."""
    change = state.last_change
    if change is None:
        return Conflict(
            "somebody else is changing the engine", remedy="agree on who does, sweep again"
        )
    if change.origin == "lease":
        return _lease_error()
    what = format_changes(change.before, change.after, moved_only=True) or "the engine"
    return Conflict(f"{change.who} changed {what} during the sweep", remedy="sweep again")


def _lease_error() -> Conflict:
    return Conflict("the sweep's lease ran out before it was renewed", remedy="sweep again")


def _kept_k_error(state: EngineState) -> Conflict:
    """Somebody asked for what was in force anyway: no change, but it is to stay."""
    return Conflict(f"somebody set k={state.k_set} for good during the sweep", remedy="sweep again")
