"""What the live screen does beside turning knobs: breaker, trials, sweeps, and how they stand."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual import work
from textual.worker import Worker

from specdeck.console.screens.steering import Desk, SteeringScreen
from specdeck.console.view import sweeping
from specdeck.console.view import tuning as view
from specdeck.console.view.steering import Refusal
from specdeck.console.view.sweeping import Run
from specdeck.console.view.track import TRIAL_LEASE_S, Track, Want
from specdeck.engine.control.protocol import Change
from specdeck.engine.errors import Conflict, SpecdeckError

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.control.tuning import Tuning
    from specdeck.engine.metrics.reading import Reading
    from specdeck.engine.operations.sweep import Sweep
    from specdeck.engine.sweep.runner import Progress

SWEEP_S = 60.0


@runtime_checkable
class Asked(Protocol):
    """An engine that can be asked for more than readings; a recording cannot."""

    @property
    def client(self) -> EngineClient:
        """For what a console asks beyond readings."""


class PilotingScreen(SteeringScreen):
    """Has the engine's word on its policy, renews this console's trials, and runs its sweeps."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.runs: dict[int, Run] = {}
        """The latest sweep of each engine."""
        self.sweepers: dict[int, Worker[None]] = {}
        self.trying: set[tuple[int, int | None]] = set()
        """Engines with a trial of this console under way, and the number that they gave it."""

    def client(self, index: int) -> EngineClient | None:
        """Asks the engine at `index`; None where nothing can be asked."""
        engine = self.desk.engines[index]
        return engine.client if isinstance(engine, Asked) else None

    @work(group="look")
    async def look(self, index: int) -> None:
        """Ask one engine for its tuning, and tell of a trial that has ended."""
        await self.looked(index)

    async def looked(self, index: int) -> None:
        """The same, to be waited for."""
        client = self.client(index)
        if client is None:
            return
        try:
            tuning = await client.tuning()
        except SpecdeckError as error:
            self.change(index, replace(self.tracks[index], tuning=None, untuned=error))
            return
        before = self.tracks[index].tuning
        self.change(index, replace(self.tracks[index], tuning=tuning, untuned=None))
        trial = tuning.trial
        was = before.trial if before is not None and before.instance == tuning.instance else None
        if trial is not None and trial.over and was is not None and not was.over:
            text, tone = view.trial(trial)
            self.change(index, self.tracks[index].told(self.desk.clock(), f"trial {text}", tone))

    def heard(self, index: int, before: Track, reading: Reading) -> None:
        """A trial that began or ended, whoever's it is, is worth a look."""
        old, new = before.known, reading.state
        if old is not None and new is not None and old.trial != new.trial:
            self.look(index)

    def action_breaker(self) -> None:
        """Open the breaker by hand, or reset it."""
        state = self.tracks[self.selected].known
        closed = state is None or state.breaker == "closed"
        self.wish(Want(breaker="open" if closed else "closed", reason="from the console"))

    def action_undo(self) -> None:
        """Take a trial back, or else this console's last change."""
        state = self.tracks[self.selected].state
        if state is not None and state.trial is not None:
            self.wish(Want(cancel=True, reason="undo", origin="undo"))
        else:
            super().action_undo()

    @work(group="ask", exclusive=True)
    async def action_trial(self) -> None:
        """Ask what to try, and have the engine judge it."""
        from specdeck.console.screens.trial import TrialDialog

        index = self.selected
        refusal = self.refusal(index, Want(k=0, trial_s=1.0))
        if refusal is not None:
            self.refuse(refusal)
            return
        await self.looked(index)
        if self.selected != index:  # another engine is on the screen by now
            return
        want = await self.app.push_screen_wait(TrialDialog(self.tracks[index]))
        if want is not None and self.selected == index:
            self.wish(want)

    @work(group="ask", exclusive=True)
    async def action_parameters(self) -> None:
        """List what can be set of the policies, and edit it."""
        from specdeck.console.screens.parameters import ParametersScreen

        await self.looked(self.selected)
        await self.app.push_screen_wait(ParametersScreen(self))

    def on_steering_screen_answered(self, message: SteeringScreen.Answered) -> None:
        """A trial that was begun here is renewed from here.

        The base class hears of the answer as well, and shows and records it.
        """
        trial = (message.index, message.applied.trial)
        if message.asked.trial_s is not None and trial not in self.trying:
            self.trying.add(trial)
            self.renew(*trial)
        if message.change.parameters or message.change.breaker or message.asked.cancel:
            self.look(message.index)

    @work(group="trial")
    async def renew(self, index: int, number: int | None) -> None:
        """Keep a trial's lease alive as long as this console is; `number` is the engine's."""
        engine, who = self.desk.engines[index], self.desk.who
        renewal = Change(renew=True, lease_s=TRIAL_LEASE_S, trial=number, who=who)
        first: Tuning | None = None
        try:
            while True:
                await self.looked(index)
                tuning = self.tracks[index].tuning
                first = first or tuning
                if tuning is not None and first is not None and _ended(tuning, first, number):
                    return
                await self.desk.sleep(TRIAL_LEASE_S / 5)
                try:
                    await engine.change(renewal)
                except Conflict:
                    await self.looked(index)
                    return
                except SpecdeckError:
                    continue  # a poor link is what the lease is there for
        finally:
            self.trying.discard((index, number))

    def action_sweep(self) -> None:
        """Sweep k on the live traffic, or stop the sweep under way."""
        index = self.selected
        if index in self.sweepers:
            # A second cancellation would end what gives the knobs back.
            if not self.sweepers[index].is_cancelled:
                self.sweepers[index].cancel()
            return
        client = self.client(index)
        refusal = self.refusal(index, Want(k=0))
        if refusal is None and client is None:
            refusal = Refusal("a recording cannot be swept")
        if refusal is not None or client is None:
            self.refuse(refusal or Refusal("there is nothing to sweep"))
            return
        self.sweepers[index] = self.sweep(index, client)

    @work(group="sweep")
    async def sweep(self, index: int, client: EngineClient) -> None:
        """Run one sweep over every k."""
        from specdeck.engine.operations.sweep import Sweep, SweepRequest
        from specdeck.engine.sweep.runner import Visited, Visiting, Waiting

        track = self.tracks[index]
        sweep = Sweep(client, SweepRequest(self.desk.who, seconds=SWEEP_S), url=track.url,
                      name=track.name, record=self.desk.on_change, wall=self.desk.clock,
                      clock=self.desk.steady, sleep=self.desk.sleep)  # fmt: skip
        self.change(index, replace(track, sweeping=True))
        error: SpecdeckError | None = None
        try:
            async with aclosing(sweep.events()) as events:
                async for event in events:
                    if isinstance(event, Waiting | Visiting | Visited):
                        self.swept(index, sweep, event.progress)
        except SpecdeckError as refusal:
            error = refusal
        finally:
            self.sweepers.pop(index, None)
            self.finish(index, sweep, error)

    def swept(self, index: int, sweep: Sweep, progress: Progress) -> None:
        """Show how far a sweep is."""
        outcome = sweep.outcome
        assert outcome is not None  # it is under way
        self.runs[index] = Run(outcome.analysis, progress)
        self.show()

    def finish(self, index: int, sweep: Sweep, error: SpecdeckError | None) -> None:
        """Tell how a sweep has ended."""
        now, outcome = self.desk.clock(), sweep.outcome
        track = replace(self.tracks[index], sweeping=False)
        if outcome is None:
            why = "by hand" if error is None else error.line()
            self.change(index, track.told(now, f"sweep stopped: {why}", "warn"))
            return
        stopped = "by hand" if outcome.interrupted else outcome.stopped
        run = Run(outcome.analysis, None, now, stopped, outcome.schedule)
        self.runs[index] = run
        track = track.told(now, sweeping.told(run), "good" if stopped is None else "warn")
        for text in outcome.notices:
            track = track.told(now, text, "warn")
        self.change(index, track)


def _ended(tuning: Tuning, first: Tuning, number: int | None) -> bool:
    """Whether the trial that `first` showed, or that was given `number`, is under way no more.

    An older plugin gives no number: the first trial that is seen is taken for the one begun.
    """
    trial, begun = tuning.trial, first.trial
    if trial is None or begun is None or trial.over or tuning.instance != first.instance:
        return True
    return trial.number != (begun.number if number is None else number)
