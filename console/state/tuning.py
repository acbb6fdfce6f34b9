"""A sweep of this console, what it and a trial have found in words, and the breaker of a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdeck.console.widgets.cells import Tone
from specdeck.engine.text import format_changes, format_duration, oneline

if TYPE_CHECKING:  # what a sweep and a trial need is not for the first paint
    from specdeck.engine.protocol.messages import EngineState, KnownBreaker
    from specdeck.engine.protocol.tuning import BreakerTuning, TrialTuning
    from specdeck.engine.sweep.analysis import Analysis, SweepOutcome
    from specdeck.engine.sweep.runner import SweepProgress


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A sweep under way, or one that has ended."""

    outcome: SweepOutcome | None = None
    """What the visits say so far; None before it is planned."""
    progress: SweepProgress | None = None
    """None before it began to look."""
    ended: float | None = None
    """Unix time; None while it goes on."""
    stopped: str | None = None
    """Why it is not whole."""
    refused: bool = False
    """Whether it never began."""


@dataclass(frozen=True, slots=True)
class LeftKnobs:
    """What a sweep of this console may have left turned; it is shown until it is answered."""

    before: Mapping[str, int | str]
    """The knobs as they were found."""
    text: str
    undo: str
    """The command that makes the engine as it was found."""
    version: int | None
    """The control version by then; None where it is not known."""

    def line(self) -> str:
        """With what takes it back."""
        return f"{self.text}: `{self.undo}` makes it as it was found" if self.undo else self.text

    def find_answer(self, state: EngineState) -> str | None:
        """What has become of it by `state`, of the same life of the engine; None while it stands.

        Nothing is answered by the end of a lease that brings other knobs, nor by the sweep's own
        change that is made late.
        """
        knobs = {name: getattr(state, _FIELDS.get(name, name)) for name in self.before}
        if knobs == self.before:
            return "the engine is as the sweep found it"
        last = state.last_change
        is_newer = self.version is not None and state.version > self.version
        if last is not None and is_newer and last.origin not in ("sweep", "lease"):
            return f"{last.who} has changed what the sweep left"
        return None


_FIELDS = {"k": "k_set"}
"""Knobs that an engine's state has under another name."""


def find_left_knobs(outcome: SweepOutcome | None) -> LeftKnobs | None:
    """What a sweep may have left turned; None where it left nothing so."""
    if outcome is None or not outcome.ending.is_left_turned:
        return None
    text = outcome.ending.line(outcome.after)
    return LeftKnobs(outcome.before, text, outcome.undo, outcome.ending.version)


def describe_optimum(analysis: Analysis) -> str:
    """The optimum and what cannot be told from it."""
    best = analysis.optimum
    if best is None:
        return "no optimum: two rounds were not completed"
    text = f"best k {best.k}"
    if not best.told_apart:
        text = f"no k told apart from {best.k}"
    elif best.tied:
        text += f", tied with {', '.join(map(str, best.tied))}"
    if best.over_target_only is not None:
        text += f": {best.over_target_only} over target-only"
    return text


def describe_end(run: SweepRun) -> str:
    """The end of a sweep as an event, or why none has begun."""
    from specdeck.engine.sweep.analysis import schedule_line

    if run.stopped is not None or run.outcome is None:
        return f"{'no sweep' if run.refused else 'sweep stopped'}: {run.stopped}"
    text, schedule = f"sweep: {describe_optimum(run.outcome.analysis)}", run.outcome.schedule
    if not schedule or not run.outcome.analysis.finds_schedule:
        return text
    return f"{text}; schedule {schedule_line(schedule)}"


def describe_trial(trial: TrialTuning) -> tuple[str, Tone]:
    """A trial on one line, and whether that is good news.

    >>> from specdeck.engine.protocol.tuning import TrialTuning
    >>> one = TrialTuning("changed", "ann", {"k": 5}, {"k": 3}, 60.0, 0.0, 41.2, 12.0)
    >>> describe_trial(one)[0]
    'k 5 → 3: measuring the change, 41 s of work left; reverted in 12 s unless renewed'
    """
    what = format_changes(trial.before, trial.after)
    if not trial.over:
        lease = trial.lease_left_s
        back = "" if lease is None else f"; reverted in {format_duration(lease)} unless renewed"
        return f"{what}: {trial.describe_work()}{back}", "accent"
    tone: Tone = "good" if trial.state == "kept" else "warn"
    ended = "never made" if trial.state == "abandoned" else trial.state
    if trial.comparison is not None:
        return f"{what} {ended}: {trial.comparison}", tone
    return f"{what} {ended}: {oneline(trial.reason or 'no reason given')}", tone


def breaker_at(
    breaker: BreakerTuning, state: KnownBreaker, age: float, turned: float | None
) -> BreakerTuning:
    """The breaker as it was `age` seconds after it was told of, in the state that it had then.

    `turned` is how many seconds before that moment it turned last, None where it did not since.

    >>> from specdeck.engine.protocol.tuning import BreakerTuning
    >>> told = BreakerTuning("open", True, "loses 8 %", since_s=12.0, next_probe_s=100.0)
    >>> found = breaker_at(told, "open", 60.0, None)
    >>> found.since_s, found.next_probe_s
    (72.0, 40.0)
    >>> found = breaker_at(told, "half-open", 110.0, 10.0)
    >>> found.state, found.since_s, found.next_probe_s
    ('half-open', 10.0, None)
    """
    if turned is None and state == breaker.state:
        probe = breaker.next_probe_s
        left = None if probe is None or probe < age else probe - age
        return replace(breaker, since_s=breaker.since_s + age, next_probe_s=left)
    # Why it opened after it was told of was not recorded with the rest: an event says so.
    reason = breaker.reason if state == "closed" or breaker.state != "closed" else None
    since = age if turned is None else turned
    return replace(
        breaker, state=state, since_s=since, reason=reason, next_probe_s=None, held=False
    )
