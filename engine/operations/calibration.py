"""A calibration from an operator's wish to its outcome, in the audit log from before it begins.

    Shapes ─▶ ShapeDone* ─▶ CalibrationOutcome

The engine makes a few dummy steps for each request that goes out, and learns from them at once. It
refuses while it has requests, so a calibration ends with the first one that comes; what was
learned until then is kept. There is nothing to give back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol

from specdeck.engine.client.retry import Retry
from specdeck.engine.errors import (
    Conflict,
    EngineError,
    NotAnEngine,
    SpecdeckError,
    Stalled,
    Unsupported,
    UsageError,
)
from specdeck.engine.protocol.calibration import DummySteps, StepShape
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.store.audit import Action
from specdeck.engine.sweep.analysis import max_num_seqs
from specdeck.engine.sweep.calibration import (
    STEPS,
    Shapes,
    ShapeTime,
    Truth,
    choose_batches,
    choose_ks,
    compare,
)
from specdeck.engine.sweep.plan import every_k
from specdeck.engine.text import format_count

CALIBRATION_S = 20.0
"""How long one takes unless told otherwise; the first round is made to its end."""
_PATIENCE_S = 8.0
_SETTLED_S = 0.2
"""After an engine's last request, until nothing of it is left."""
_INTERRUPTIONS = 20
"""Looks of others, each of which ends the dummy steps of one shape early, before it gives up."""
INTERRUPTED = "interrupted"


class CalibratedEngine(Protocol):
    """As much of an engine as a calibration asks."""

    async def state(self) -> EngineState:
        """The plugin's word."""

    async def facts(self) -> dict[str, Any]:
        """Among them the seats of the engine."""

    async def calibrate(self, shape: StepShape) -> DummySteps:
        """Has it make dummy steps; raises Conflict while it has requests."""


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """What an operator asks of a calibration."""

    who: str
    ks: tuple[int, ...] | None = None
    """None is every k of the engine, or some of many."""
    seconds: float = CALIBRATION_S
    """Rounds are begun as long as another one fits."""
    rounds: int | None = None
    """None is as many as the time allows."""
    reason: str = "sweep --calibrate"


@dataclass(frozen=True, slots=True)
class ShapeDone:
    """Dummy steps of a shape were made."""

    made: DummySteps
    done: int
    """Shapes of this round."""
    of: int
    round: int


EngineAfter = Literal["intact", "restarted", "silent"]
"""An engine after its calibration: as it was found; another start of it, which has learned nothing;
or one that does not answer after an error."""


@dataclass(frozen=True, slots=True)
class CalibrationOutcome:
    """What a calibration has come to, whole or not."""

    url: str
    shapes: Shapes
    times: tuple[ShapeTime, ...]
    """Of those that were made, by batch size and k."""
    rounds: int
    """Rounds that were completed."""
    seconds: float
    model: str
    method: str | None
    error: SpecdeckError | None = None
    interrupted: bool = False
    notices: tuple[str, ...] = ()
    engine_after: EngineAfter = "intact"

    @property
    def complete(self) -> bool:
        """Whether every shape was made."""
        return self.rounds > 0

    @property
    def stopped(self) -> str | None:
        """Why it ended early, on one line; None where it did not."""
        if self.error is not None:
            return self.error.line()
        return INTERRUPTED if self.interrupted else None

    @property
    def truth(self) -> Truth | None:
        """How it compares with real steps; None where the engine has seen none of these shapes."""
        return compare(self.times)

    def as_json(self) -> dict[str, Any]:
        """The document of `sweep --calibrate --json`."""
        truth = self.truth
        return {
            "engine": self.url,
            "model": self.model,
            "method": self.method,
            "k": list(self.shapes.ks),
            "batch_sizes": list(self.shapes.batches),
            "rounds": self.rounds,
            "seconds": round(self.seconds, 2),
            "complete": self.complete,
            "stopped": self.stopped,
            "shapes": [each.as_json() for each in self.times],
            "against_real": None if truth is None else truth.as_json(),
            "notices": list(self.notices),
        }


CalibrationEvent = Shapes | ShapeDone | CalibrationOutcome


class Calibration:
    """One calibration; iterate `events` to its end, or close it."""

    def __init__(
        self,
        engine: CalibratedEngine,
        request: CalibrationRequest,
        *,
        url: str,
        name: str,
        record: Callable[[Action], object],
        random: Random | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`record` writes into the audit log and may raise SpecdeckError, which is a notice."""
        self.request = request
        self._engine, self._url, self._name = engine, url, name
        self._record = record
        self._random = random or Random()
        self._wall, self._clock, self._sleep = wall, clock, sleep
        self._times: dict[tuple[int, int], ShapeTime] = {}
        self._shapes: Shapes | None = None
        self._state: EngineState | None = None
        self._rounds = 0
        self._began = 0.0
        self._error: SpecdeckError | None = None
        self._interrupted = False
        self._engine_after: EngineAfter = "intact"
        self._too_large: set[StepShape] = set()
        self._notices: list[str] = []

    @property
    def outcome(self) -> CalibrationOutcome | None:
        """What it has come to by now; None before it is planned."""
        if self._shapes is None or self._state is None:
            return None
        return CalibrationOutcome(
            self._url,
            self._shapes,
            tuple(self._times[at] for at in sorted(self._times)),
            self._rounds,
            self._clock() - self._began,
            self._state.model,
            self._state.method,
            self._error,
            self._interrupted,
            tuple(self._notices),
            self._engine_after,
        )

    async def _look_after(self) -> EngineAfter:
        """How the engine is after an error."""
        try:
            now = await self._engine.state()
        except SpecdeckError:
            return "silent"
        is_same = self._state is not None and now.instance == self._state.instance
        return "intact" if is_same else "restarted"

    async def events(self) -> AsyncGenerator[CalibrationEvent, None]:
        """Everything that happens, as it happens.

        Raises SpecdeckError where this engine cannot be calibrated now; what stops it after the
        plan is `error` of the outcome.
        """
        shapes = self._shapes = await self._prepare()
        self._began = self._clock()
        yield shapes
        self._write({"calibration": str(shapes)}, self.request.reason)
        try:
            while self._has_time():
                for done, (batch, k) in enumerate(shapes.order(self._random), start=1):
                    made = await self._visit(StepShape(batch, k, STEPS))
                    if made is not None:
                        yield ShapeDone(made, done, len(shapes), self._rounds)
                self._rounds += 1
            if self._too_large:
                left_out = format_count(len(self._too_large), "shape")
                self._notices.append(f"{left_out} left out: more than a step of this engine has")
        except SpecdeckError as error:
            self._error = error
            self._engine_after = await self._look_after()
        except (asyncio.CancelledError, GeneratorExit):
            self._interrupted = True
            raise
        finally:
            found = self.outcome
            ended = f": {found.stopped}" if found is not None and found.stopped else ""
            self._write({"calibration": f"{len(self._times)} of {len(shapes)} shapes"},
                        f"end of {self.request.reason}{ended}")  # fmt: skip
        assert self.outcome is not None
        yield self.outcome

    def _has_time(self) -> bool:
        """Whether another round is due."""
        if self.request.rounds is not None:
            return self._rounds < self.request.rounds
        if not self._rounds:
            return True
        spent = self._clock() - self._began
        return spent + spent / self._rounds <= self.request.seconds

    async def _prepare(self) -> Shapes:
        """Raises Unsupported, Conflict or UsageError where it cannot be done, with the reason."""
        retry = Retry(_PATIENCE_S, clock=self._clock, sleep=self._sleep)
        state = self._state = await retry.answer(self._engine.state, errors=Stalled)
        able = every_k(state)
        refuse(state)
        for k in self.request.ks or ():
            if k not in able:
                raise UsageError(f"k={k} is none of this engine's: {able[0]} to {able[-1]}")
        facts = await retry.answer(self._engine.facts, errors=Stalled)
        return Shapes(choose_batches(max_num_seqs(facts) or 1), self.request.ks or choose_ks(able))

    async def _visit(self, shape: StepShape) -> DummySteps | None:
        """Has dummy steps made, again where a look of somebody else's came in between.

        None where the engine has no step so large. Raises Conflict once it has requests.
        """
        if shape in self._too_large:
            return None
        for _ in range(_INTERRUPTIONS):
            try:
                made = await self._ask(shape)
            except UsageError:
                if shape.batch == min(self._shapes.batches if self._shapes else ()):
                    raise  # the smallest of all fits in any step
                self._too_large.add(shape)
                return None
            self._require_same(made, shape)
            known = self._times.setdefault((shape.batch, shape.k), ShapeTime(shape.batch, shape.k))
            known.seconds += made.seconds
            known.real_s = made.real_s
            if made.seconds:
                return made
        raise Conflict(
            "others ask the engine for so much that no dummy step is made",
            remedy="let another calibration end, close attached consoles, and try again",
        )

    def _require_same(self, made: DummySteps, shape: StepShape) -> None:
        """Raises EngineError where the steps are of another start of the engine, or none of those
        that were asked for: their times say nothing of this shape."""
        if self._state is not None and made.instance != self._state.instance:
            raise EngineError(
                "the engine was restarted during the calibration", remedy="calibrate it again"
            )
        if (made.batch, made.k) != (shape.batch, shape.k):
            raise NotAnEngine(
                f"the engine was asked for steps of {shape.batch} requests at k={shape.k}, "
                f"and made some of {made.batch} at k={made.k}"
            )

    async def _ask(self, shape: StepShape) -> DummySteps:
        try:
            return await self._engine.calibrate(shape)
        except Conflict:
            if self._times:
                raise
        await self._sleep(_SETTLED_S)  # nothing may be left of the last request by then
        return await self._engine.calibrate(shape)

    def _write(self, after: dict[str, Any], reason: str) -> None:
        """An entry of the audit log: the engine's knobs are as they were, and there is no undo."""
        state = self._state
        action = Action(
            self._wall(), self.request.who, self._url, self._name, {}, after, "",
            state.instance if state else None, reason, origin="sweep",
        )  # fmt: skip
        try:
            self._record(action)
        except SpecdeckError as error:
            notice = f"the audit log is not written: {error.line()}"
            if notice not in self._notices:
                self._notices.append(notice)


def refuse(state: EngineState) -> None:
    """Raises Unsupported or Conflict where this engine cannot be calibrated now."""
    able = state.can("calibration")
    if not able.available:
        raise Unsupported(f"it cannot be calibrated: {able.reason}", remedy=able.remedy)
    if busy := state.running + state.waiting:
        noun = "request is" if busy == 1 else "requests are"
        raise Conflict(
            f"{busy} {noun} in the engine, and dummy steps would hold them up",
            remedy="take it out of the traffic, or calibrate it before it gets any",
        )
