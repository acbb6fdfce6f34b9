"""The judged trial of one engine: which knobs it turns, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdeck.engine.control.tuning import Comparison, Interval, TrialTuning
from specdeck.engine.plugin.knobs import Knobs
from specdeck.engine.policy.trial import Comparison as Measured
from specdeck.engine.policy.trial import Trial
from specdeck.engine.tuning.intervals import Change


@dataclass(frozen=True, slots=True)
class Judged:
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

    def told(self) -> TrialTuning:
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
            comparison=None if measured is None else _comparison(measured),
            verdict=None if measured is None else measured.verdict,
            reason=trial.reason,
            number=self.number,
        )


def _comparison(measured: Measured) -> Comparison:
    before, after = measured.before, measured.after
    return Comparison(
        measured.verdict,
        _interval(measured.tokens_per_second),
        _interval(measured.seconds_per_token),
        before_tokens_per_second=before[0],
        after_tokens_per_second=after[0],
        before_ms_per_token=before[1] * 1e3,
        after_ms_per_token=after[1] * 1e3,
    )


def _interval(change: Change) -> Interval:
    return Interval(change.value, change.low, change.high)
