"""The judged trial of one engine: which knobs it turns, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specdeck.engine.plugin.steering import Knobs, Steering, Turn
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.trial_verdict import Action, Trial
from specdeck.engine.protocol.messages import Change, Lease
from specdeck.engine.protocol.tuning import TrialTuning


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial and the two settings that it compares."""

    trial: Trial
    back: Knobs
    """In force before, and again when it is reverted."""
    wanted: Knobs
    before: Mapping[str, Any]
    """What the change turns, as it was."""
    after: Mapping[str, Any]
    who: str
    t: float
    """Unix time of its begin, seconds."""
    number: int
    why: str | None = None

    def lease(self) -> Lease | None:
        """What is left until it is reverted, for the wire; None where nobody need renew it."""
        left = self.trial.lease_left_s
        return None if left is None else Lease(left, self.back.k, self.back.mode)

    def as_reply(self) -> TrialTuning:
        """The trial, for the wire."""
        trial, measured = self.trial, self.trial.comparison
        return TrialTuning(
            state=trial.state,
            who=self.who,
            before=dict(self.before),
            after=dict(self.after),
            seconds=trial.parameters.seconds,
            t=self.t,
            seconds_left=trial.seconds_left,
            lease_left_s=trial.lease_left_s,
            comparison=measured,
            verdict=None if measured is None else measured.verdict,
            reason=trial.reason,
            number=self.number,
        )


class Trials:
    """One trial at a time: turns its knobs and ends it as it judges."""

    def __init__(
        self, steering: Steering, turn: Turn, take_back: Turn, *, clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:  # fmt: skip
        """`turn` makes knobs the engine's and remembers who did; `take_back` sees to it."""
        self._steering = steering
        self._turn = turn
        self._take_back = take_back
        self._clock = clock
        self._wall = wall
        self.last: TrialRecord | None = None
        """The one under way, or the last that ended."""
        self.moves = 0
        """Counts what happened to trials, as versions count changes."""

    @property
    def running(self) -> TrialRecord | None:
        """The trial under way."""
        last = self.last
        return None if last is None or last.trial.over else last

    @property
    def number(self) -> int:
        """Of the last trial; 0 before any."""
        return self.last.number if self.last else 0

    def begin(self, change: Change) -> tuple[str, ...]:
        """Begins a trial: at once where the time before it is measured already."""
        steering = self._steering
        assert steering.runner is not None
        touched, parameters = steering.touched_names(change), steering.catalogue.trial
        was, wanted = steering.pick(touched), steering.knobs.with_change(change)
        if change.trial_s is not None:
            parameters = parameters.lasting(change.trial_s)
        trial = Trial(
            parameters, t=self._clock(), lease_s=change.lease_s, work=steering.runner.work
        )
        self.last = TrialRecord(
            trial,
            back=steering.knobs,
            wanted=wanted,
            before=was,
            after={**change.knobs(), **({"policy": wanted.policy} if "policy" in was else {})},
            who=change.who or "unknown",
            t=self._wall(),
            number=1 + self.number,
            why=change.reason,
        )
        self.moves += 1
        notices: tuple[str, ...] = ()
        if not trial.ready:
            left = trial.seconds_left or 0.0
            notices = (f"the change is made after {left:.0f} s of work as it is now",)
        return notices + self._act(self.last, trial.begin())

    def tick(self) -> None:
        """Ends the trial whose lease has run out."""
        if (judged := self.running) is not None:
            self._act(judged, judged.trial.tick(self._clock()))

    def step(self, step: Step) -> None:
        """Counts a step."""
        if (judged := self.running) is not None:
            self._act(judged, judged.trial.step(step))

    def cancel(self, reason: str) -> tuple[str, ...]:
        """Ends the trial under way, if there is one."""
        judged = self.running
        if judged is None:
            return ()
        self._act(judged, judged.trial.cancel(reason))
        return (f"the trial of {judged.who} ended: {reason}",)

    def _act(self, judged: TrialRecord, action: Action | None) -> tuple[str, ...]:
        """Does what a trial asks for."""
        if action is None:
            return ()
        words = judged.trial.reason
        if action == "apply":
            reason = f"on trial: {judged.why}" if judged.why else "on trial"
            try:
                return self._turn(judged.wanted, who=judged.who, reason=reason, origin="trial")
            except Exception:
                judged.trial.cancel("the change could not be made")
                raise
        self.moves += 1
        if action == "revert":
            return self._take_back(judged.back, who="specdeck", reason=words, origin="trial")
        runner = self._steering.runner
        if action == "keep" and runner is not None:
            k = self._steering.engine.scheduled_k()
            runner.log_move(k, k, f"trial kept, {words}", "trial", "trial")
        return ()
