"""A sweep over k from an operator's wish to its outcome, in the audit log from before it steers.

    Plan ─▶ WaitingForTraffic* ─▶ (Visiting ─▶ VisitDone)* ─▶ SweepOutcome

Whoever asks prints or shows the events. A sweep that is cancelled or closed gives the engine
back and writes its end into the audit log first; its `outcome` is there then as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from specdeck.engine.client.retry import Retry
from specdeck.engine.errors import SpecdeckError, Stalled
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.store.audit import Action, Outcome
from specdeck.engine.sweep.analysis import SweepOutcome
from specdeck.engine.sweep.plan import LEASE_S, Plan, every_k, plan, refuse
from specdeck.engine.sweep.runner import (
    SteeredEngine,
    SweepRunner,
    VisitDone,
    Visiting,
    WaitingForTraffic,
)

SWEEP_S = 60.0
"""How long a sweep takes unless told otherwise."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What an operator asks of a sweep."""

    who: str
    """For the engine and the audit log."""
    ks: tuple[int, ...] | None = None
    """None is every k of the engine."""
    seconds: float = SWEEP_S
    """Of the whole sweep, with traffic all the time."""
    rounds: int | None = None
    """Visits of each k; None is as many as the time allows."""
    reason: str = "sweep"
    lease_s: float = LEASE_S
    """Seconds after which the engine takes its k back when nobody renews it."""


SweepEvent = Plan | WaitingForTraffic | Visiting | VisitDone | SweepOutcome
"""The plan comes before anything is changed, the outcome once the engine is given back."""


class Sweep:
    """One sweep; iterate `events` to its end, or close it, which gives the engine back."""

    def __init__(
        self,
        engine: SteeredEngine,
        request: SweepRequest,
        *,
        url: str,
        name: str,
        record: Callable[[Action], object],
        random: Random | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`record` writes into the audit log and may raise SpecdeckError, which is a notice.

        `name` is what people call the engine at `url`; `wall` tells Unix time in seconds.
        """
        self.request = request
        self._engine = engine
        self._url = url
        self._name = name
        self._record = record
        self._random = random
        self._wall = wall
        self._clock = clock
        self._sleep = sleep
        self._runner: SweepRunner | None = None
        self._recorded = False
        self._error: SpecdeckError | None = None
        self._interrupted = False

    @property
    def outcome(self) -> SweepOutcome | None:
        """What it has come to by now; None before it is planned."""
        return None if self._runner is None else self._outcome(self._runner)

    def _outcome(self, runner: SweepRunner) -> SweepOutcome:
        found = runner.outcome(self._url, error=self._error, interrupted=self._interrupted)
        knobs: dict[str, Any] = dict(runner.before)
        if found.ending.has_breaker_opened:
            knobs["breaker"] = runner.found.breaker
        return replace(found, undo=format_undo(self._url, knobs))

    async def events(self) -> AsyncGenerator[SweepEvent, None]:
        """Everything that happens, as it happens.

        Raises SpecdeckError where the engine cannot be swept at all; what stops the sweep
        after the plan is `error` of the outcome.
        """
        runner = self._runner = await self._prepare()
        yield runner.plan
        try:
            async with aclosing(runner.visits()) as visits:
                async for step in visits:
                    if isinstance(step, Visiting):
                        self._record_begin(runner)
                    yield step
        except SpecdeckError as error:
            self._error = error
        except (asyncio.CancelledError, GeneratorExit):
            self._interrupted = True
            raise
        finally:
            self._record_end(runner)
        yield self._outcome(runner)

    async def _prepare(self) -> SweepRunner:
        retry = Retry(LEASE_S, clock=self._clock, sleep=self._sleep)
        state = await retry.answer(self._engine.state, errors=Stalled)
        wanted, able = self.request, every_k(state)
        planned = plan(wanted.ks or able, seconds=wanted.seconds, rounds=wanted.rounds)
        refuse(state, planned)
        return SweepRunner(
            self._engine,
            replace(planned, lease_s=wanted.lease_s),
            state,
            who=wanted.who,
            reason=wanted.reason,
            random=self._random,
            clock=self._clock,
            sleep=self._sleep,
        )

    def _record_begin(self, runner: SweepRunner) -> None:
        """Before the first change, so that a sweep that is killed is in the log as well."""
        if self._recorded:
            return
        self._recorded = True
        self._write(runner, dict(runner.before), {"k": _ks(runner.plan)}, runner.reason)

    def _record_end(self, runner: SweepRunner) -> None:
        """What the engine was left with, and the optimum."""
        if not self._recorded:
            return
        outcome = self._outcome(runner)
        best, ending, after = outcome.analysis.best_k, outcome.ending, outcome.after
        found = outcome.stopped or ("no optimum" if best is None else f"best k={best}")
        left = f"; {ending.line(after)}" if ending.is_left_turned else ""
        came: Outcome = "unknown" if ending.left == "unknown" else "applied"
        reason = f"end of {runner.reason}: {found}{left}"
        self._write(runner, {"k": _ks(runner.plan)}, dict(after or {}), reason, came)

    def _write(
        self,
        runner: SweepRunner,
        before: dict[str, Any],
        after: dict[str, Any],
        reason: str,
        came: Outcome = "applied",
    ) -> None:
        undo = format_undo(self._url, dict(runner.before))
        action = Action(
            self._wall(), runner.who, self._url, self._name, before, after, undo,
            runner.found.instance, reason, origin="sweep", outcome=came,
        )  # fmt: skip
        try:
            self._record(action)
        except SpecdeckError as error:
            notice = f"the audit log is not written: {error.line()}"
            if notice not in runner.notices:
                runner.notices.append(notice)


def _ks(plan: Plan) -> str:
    return ",".join(map(str, plan.ks))
