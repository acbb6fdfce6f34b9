"""A sweep with an engine without speculation as one more arm, under a load of its own.

    Plan ─▶ (Visiting ─▶ VisitDone | HardVisiting ─▶ HardVisitDone)* ─▶ SweepOutcome ─▶ HardOutcome

In each round every k and the other engine are visited once, in random order: what drifts hits
all of them alike. One engine has the load at a time, since two that run on one machine measure
each other. What soft k = 0 costs more is then told to the swept engine, which counts its
savings by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Literal, TypeVar

from specdeck.engine.client.retry import Retry
from specdeck.engine.errors import Conflict, EngineError, SpecdeckError, Stalled, UsageError
from specdeck.engine.operations.record import Audit, ChangeRecord, is_refusal
from specdeck.engine.operations.sweep import Sweep, SweepEvent
from specdeck.engine.protocol.messages import Change, EngineState
from specdeck.engine.sweep.analysis import SweepOutcome, VisitSums
from specdeck.engine.sweep.hard import HardComparison, compare
from specdeck.engine.sweep.plan import LEASE_S, Plan
from specdeck.engine.sweep.runner import (
    PATIENCE_S,
    POLL_S,
    SteeredEngine,
    SweepProgress,
    VisitDone,
    Visiting,
    WaitingForTraffic,
)

PARAMETER = "baseline.soft_cost"
LEAD_S = 1.0
"""Load before a visit after it has moved: its first prompts come all at once."""
HARD_LEASE_S = 30.0
"""A sweep's lease while the load is elsewhere for a visit: nothing renews it meanwhile."""
_DRAIN_S = 10.0
"""How long requests that were given up may stay in an engine."""

_T = TypeVar("_T")
Side = Literal["serving", "reference"]
Drive = Callable[[Side, int], AbstractAsyncContextManager[object]]
"""Keeps the load on one of the engines; the number decides its prompts."""


@dataclass(frozen=True, slots=True)
class HardVisiting:
    """A visit of the engine without speculation is about to begin."""

    progress: SweepProgress


@dataclass(frozen=True, slots=True)
class HardVisitDone:
    """A visit of it was made."""

    progress: SweepProgress
    visit: VisitSums


@dataclass(frozen=True, slots=True)
class HardOutcome:
    """What a sweep beside an engine without speculation has come to, whole or not."""

    sweep: SweepOutcome
    comparison: HardComparison
    reference: str
    """The URL of the engine without speculation."""
    told: float | None = None
    """The cost that the engine counts by from now on; None where it was not told any."""
    notices: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The document of `sweep --hard --json`."""
        found = self.sweep.as_json()
        hard = {**self.comparison.as_json(), "engine": self.reference, "told": self.told}
        return {**found, "hard": hard, "notices": [*found["notices"], *self.notices]}


HardEvent = SweepEvent | HardVisiting | HardVisitDone | HardOutcome


class HardSweep:
    """One such sweep; iterate `events` to its end, or close it, which gives the engine back."""

    def __init__(
        self,
        sweep: Sweep,
        engine: SteeredEngine,
        reference: SteeredEngine,
        *,
        drive: Drive,
        url: str,
        reference_url: str,
        name: str,
        audit: Audit,
        random: Random | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`sweep` is of `engine`, its rounds are given, and it is as patient as HARD_LEASE_S.

        The rest is as for a Sweep.
        """
        self._sweep = sweep
        self._engine, self._url, self._name = engine, url, name
        self._reference, self._reference_url = reference, reference_url
        self._drive = drive
        self._audit = audit
        self._random = random or Random()
        self._wall = wall
        self._clock = clock
        self._sleep = sleep
        self._visits: list[VisitSums] = []
        self._notices: list[str] = []
        self._told: float | None = None
        self._side: Side | None = None
        self._moves: dict[Side, int] = {"serving": 0, "reference": 0}

    @property
    def outcome(self) -> HardOutcome | None:
        """What it has come to by now; None before it is planned."""
        found = self._sweep.outcome
        if found is None:
            return None
        comparison = compare(found.counted, self._visits, best_k=found.analysis.best_k)
        notices = list(self._notices)
        if comparison.differs:
            notices.append(
                f"{comparison.soft_batch:.1f} requests in a step at k=0, "
                f"{comparison.hard_batch:.1f} without speculation: other traffic was measured too"
            )
        return HardOutcome(found, comparison, self._reference_url, self._told, tuple(notices))

    async def events(self) -> AsyncGenerator[HardEvent, None]:
        """Everything that happens, as it happens.

        Raises SpecdeckError where it cannot begin; what stops it later is `error` of the
        sweep's outcome, or raised where it is the other engine's.
        """
        await self._refuse()
        async with AsyncExitStack() as load, aclosing(self._sweep.events()) as swept:
            planned = await anext(swept)
            assert isinstance(planned, Plan)  # it begins so, or raises
            assert planned.limit_s is None  # each round has a place for the other engine
            yield planned
            for round in range(planned.rounds):
                order = [*([False] * len(planned.ks)), True]
                self._random.shuffle(order)
                for is_hard in order:
                    await self._move(load, "reference" if is_hard else "serving")
                    if is_hard:
                        yield HardVisiting(self._progress(planned))
                        self._visits.append(await self._visit(planned, round))
                        yield HardVisitDone(self._progress(planned), self._visits[-1])
                        continue
                    async for event in swept:
                        yield self._add_visits(event, planned)
                        if isinstance(event, VisitDone | SweepOutcome):
                            break
                    if self._sweep.outcome is not None and self._sweep.outcome.error is not None:
                        return
            await load.aclose()
            async for event in swept:
                yield event
        await self._tell()
        assert self.outcome is not None
        yield self.outcome

    async def _refuse(self) -> None:
        """Raises Conflict or UsageError where the comparison would be of something else."""
        theirs = await self._answer(self._reference.state)
        if theirs.k_max:
            raise UsageError(
                f"{self._reference_url} speculates, so it shows nothing of no speculation",
                remedy="name an engine without speculative_config",
            )
        refuse_busy(self._reference_url, theirs)
        refuse_busy(self._url, await self._answer(self._engine.state))

    async def _answer(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        retry = Retry(LEASE_S, clock=self._clock, sleep=self._sleep)
        return await retry.answer(ask, errors=Stalled)

    async def _move(self, load: AsyncExitStack, side: Side) -> None:
        """Has the load on `side`, once nothing of it is left on the other."""
        if self._side == side:
            return
        await load.aclose()
        if self._side is not None:
            await self._drain(self._engine if self._side == "serving" else self._reference)
        await load.enter_async_context(self._drive(side, self._moves[side]))
        self._moves[side] += 1
        self._side = side
        await self._sleep(LEAD_S)

    async def _drain(self, engine: SteeredEngine) -> None:
        ends = self._clock() + _DRAIN_S
        while self._clock() < ends:
            state = await self._answer(engine.state)
            if not state.running + state.waiting:
                return
            await self._sleep(POLL_S / 5)
        raise EngineError("the requests of the load do not end", remedy="see the engine's log")

    async def _visit(self, plan: Plan, round: int) -> VisitSums:
        """One visit of the engine without speculation, as long as one of a k."""
        since = (await self._answer(self._reference.state)).step
        visit, ends = VisitSums(0, round), self._clock() + plan.measure_s + PATIENCE_S
        while visit.work.seconds < plan.measure_s and self._clock() < ends:
            await self._sleep(min(POLL_S, plan.measure_s))
            steps = await self._answer(partial(self._reference.steps, since))
            since = visit.add_newer(steps, since)
        if visit.visit() is None or visit.work.seconds < plan.measure_s / 4:
            raise EngineError(
                f"{self._reference_url} generated next to nothing under the load",
                remedy="see its log, and whether it takes the load's requests",
            )
        return visit

    def _progress(self, plan: Plan) -> SweepProgress:
        soft = 0 if self._sweep.outcome is None else len(self._sweep.outcome.visits)
        done, of = soft + len(self._visits), plan.visits + plan.rounds
        return SweepProgress(done, of, None, seconds_left(plan, of - done))

    def _add_visits(self, event: SweepEvent, plan: Plan) -> SweepEvent:
        """An event of the sweep, with the visits of the other engine in its progress."""
        if not isinstance(event, WaitingForTraffic | Visiting | VisitDone):
            return event
        return replace(event, progress=replace(self._progress(plan), k=event.progress.k))

    async def _tell(self) -> None:
        """Has the engine count its savings by what was found, and writes it into the audit log."""
        found = self.outcome
        cost = None if found is None else found.comparison.known_cost
        if found is None or not found.sweep.complete or cost is None:
            return
        request = self._sweep.request
        reason = f"{request.reason}: soft k=0 against no speculation"
        change = Change(
            parameters={PARAMETER: cost}, who=request.who, reason=reason, origin="sweep"
        )
        record = ChangeRecord(self._audit, change, self._url, self._name, self._wall)
        record.ask({}, instance=None)
        try:
            made = await self._answer(lambda: self._engine.put(change))
        except asyncio.CancelledError:
            self._notices.append(f"the engine may have been told {PARAMETER}={cost:g}: interrupted")
            raise
        except SpecdeckError as error:
            record.fail(error)
            what = "was not told" if is_refusal(error) else "may not have been told"
            self._notices.append(f"the engine {what} {PARAMETER}: {error.line()}")
            return
        self._told = cost
        if (failure := record.add(made, instance=None)) is not None:
            self._notices.append(f"the audit log is not written: {failure.error.line()}")


def refuse_busy(url: str, state: EngineState) -> None:
    """Raises Conflict where the engine at `url` has requests of others."""
    if busy := state.running + state.waiting:
        noun = "request is" if busy == 1 else "requests are"
        raise Conflict(
            f"{busy} {noun} in {url}, and --hard brings a load of its own: it requires an engine "
            "without other traffic",
            remedy="take the engine out of the traffic, then sweep it again",
        )


def seconds_left(plan: Plan, visits: int) -> float:
    """Seconds that so many visits of such a sweep take, with the moves of the load.

    >>> round(seconds_left(Plan((0, 3), 6, 1.0), 18), 1)
    34.5
    """
    rounds = visits / (len(plan.ks) + 1)
    return visits * plan.visit_s + 2 * rounds * LEAD_S  # to the other engine and back
