"""The judged trial of one engine: which knobs it turns, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
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
            turns=trial.turns,
            pairs=trial.pairs,
            pairs_planned=trial.pairs_planned,
        )


class Trials:
    """One trial at a time: turns its knobs and ends it as it judges."""

    def __init__(
        self, steering: Steering, turn: Turn, take_back: Turn, *, clock: Callable[[], float],
        wall: Callable[[], float], random: Random | None = None,
    ) -> None:  # fmt: skip
        """`turn` makes knobs the engine's and remembers who did; `take_back` sees to it.

        `random` orders the stints of a trial.
        """
        self._steering = steering
        self._turn = turn
        self._take_back = take_back
        self._clock = clock
        self._wall = wall
        self._random = random
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
        """Begins a trial with the change in force."""
        steering = self._steering
        assert steering.runner is not None
        touched, parameters = steering.touched_names(change), steering.catalogue.trial
        was, wanted = steering.pick(touched), steering.knobs.with_change(change)
        if change.trial_s is not None:
            parameters = parameters.lasting(change.trial_s)
        trial = Trial(
            parameters,
            t=self._clock(),
            lease_s=change.lease_s,
            slow=takes_time(steering.knobs, wanted),
            random=self._random,
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
        return self._act(self.last, trial.begin())

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
        words, steering = judged.trial.reason, self._steering
        if action == "apply" and judged.trial.turns == 1:
            reason = f"on trial: {judged.why}" if judged.why else "on trial"
            try:
                return self._turn(judged.wanted, who=judged.who, reason=reason, origin="trial")
            except Exception:
                judged.trial.cancel("the change could not be made")
                raise
        if action in ("apply", "withdraw"):
            try:
                steering.swap(judged.wanted if action == "apply" else judged.back)
            except Exception:
                # Taken back, and tried again after a while should that fail as well.
                self._act(judged, judged.trial.cancel("a turn between the settings failed"))
                raise
            return ()
        self.moves += 1
        if action == "keep":
            steering.swap(judged.wanted)
            if steering.runner is not None:
                k = steering.engine.scheduled_k()
                steering.runner.log_move(k, k, f"trial kept, {words}", "trial", "trial")
        if action == "revert":
            # Between two of its stints the engine may be back already; what is remembered is
            # that the change is not in force any more.
            return self._take_back(
                judged.back, who="specdeck", reason=words, origin="trial", before=judged.wanted
            )
        return ()


def takes_time(back: Knobs, wanted: Knobs) -> bool:
    """Whether the difference shows some time after a turn only.

    A policy has to look around, and a drafter that was left out has to see every token anew.
    """
    automatic = {back.policy, wanted.policy} != {"fixed"}
    return automatic or back.cold != wanted.cold or back.parameters != wanted.parameters
