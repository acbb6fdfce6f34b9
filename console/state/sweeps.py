"""Sweeps of k that a console makes: one of an engine at a time, begun and stopped by one key."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from specdeck.console.state.tuning import (
    SweepRun,
    describe_end,
    find_left_knobs,
)
from specdeck.console.widgets.cells import Tone
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.protocol.messages import Change

if TYPE_CHECKING:
    from specdeck.console.state.controller import Controller, Task
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.operations.record import Audit
    from specdeck.engine.operations.sweep import Sweep


_MASHED_S: Final = 1.0
"""A press so soon after one that stops a sweep is more of the same, and begins none."""


@dataclass(slots=True)
class _Sweeper:
    """The sweep of one engine, under way."""

    task: Task | None = None
    begun: bool = False
    stopping: bool = False

    def stop(self) -> None:
        """Ends it, once: a second cancellation would end what gives the knobs back."""
        if not self.stopping and self.begun and self.task is not None:
            self.task.cancel()
        self.stopping = True


class Sweeps:
    """The sweeps of a controller's engines; how far they are is told in its tracks."""

    def __init__(self, controller: Controller, audit: Audit) -> None:
        self._controller = controller
        self._audit = audit
        self._sweepers: dict[int, _Sweeper] = {}
        self._stop_pressed: dict[int, float] = {}
        """When a sweep was last told to stop, by the steady clock."""

    def toggle(self, index: int) -> bool:
        """Sweep every k of an engine, or stop its sweep; whether one has begun."""
        controller, now = self._controller, self._controller.steady()
        is_mashed = now - self._stop_pressed.get(index, float("-inf")) < _MASHED_S
        if index in self._sweepers or is_mashed:
            self._stop_pressed[index] = now
            if index in self._sweepers:
                self._sweepers[index].stop()
            return False
        client = controller.find_client(index)
        obstacle = controller.find_obstacle(Change(k=0))
        if obstacle is not None:
            controller.refuse(obstacle.line())
        if obstacle is not None or client is None:  # a recording is an obstacle already
            return False
        sweeper = self._sweepers[index] = _Sweeper()
        sweeper.task = controller.spawn(self._sweep(index, client, sweeper), "sweep")
        return True

    async def _sweep(self, index: int, client: EngineClient, sweeper: _Sweeper) -> None:
        from specdeck.engine.operations.sweep import Sweep, SweepRequest
        from specdeck.engine.sweep.runner import VisitDone, Visiting, WaitingForTraffic

        if sweeper.stopping:
            del self._sweepers[index]
            return
        sweeper.begun = True
        controller = self._controller
        engine = controller.engines[index]
        sweep = Sweep(client, SweepRequest(controller.who), url=engine.url, name=engine.name,
                      record=self._audit.add, wall=controller.clock, clock=controller.steady,
                      sleep=controller.sleep)  # fmt: skip
        controller.put(index, replace(controller.tracks[index], sweep=SweepRun()))
        error: SpecdeckError | None = None
        try:
            async with aclosing(sweep.events()) as events:
                async for event in events:
                    if isinstance(event, WaitingForTraffic | Visiting | VisitDone):
                        run = SweepRun(sweep.outcome, event.progress)
                        controller.put(index, replace(controller.tracks[index], sweep=run))
        except SpecdeckError as refusal:
            error = refusal
        finally:
            del self._sweepers[index]
            self._tell_end(index, sweep, error)

    def _tell_end(self, index: int, sweep: Sweep, error: SpecdeckError | None) -> None:
        controller = self._controller
        outcome, now = sweep.outcome, controller.clock()
        refused = error is not None
        run = SweepRun(
            ended=now, stopped="by hand" if error is None else error.line(), refused=refused
        )
        if outcome is not None:
            stopped = "by hand" if outcome.interrupted else outcome.stopped
            run = SweepRun(outcome, None, now, stopped)
        left = find_left_knobs(outcome)
        track = controller.tracks[index]
        track = replace(track, sweep=run, left=left or track.left)
        tone: Tone = "good" if run.stopped is None else "warn"
        track = track.add_event(now, describe_end(run), tone, kind="sweep")
        for text in () if outcome is None else (*outcome.notices, *outcome.others):
            track = track.add_event(now, text, "warn", kind="sweep")
        if left is not None:
            track = track.add_event(now, f"sweep: {left.text}", "bad", kind="sweep")
        controller.put(index, track)
