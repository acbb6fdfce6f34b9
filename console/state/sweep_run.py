"""A sweep of this console at one moment: how far it is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what a sweep needs is not for the first paint
    from specdeck.engine.sweep.analysis import Analysis, SweepOutcome
    from specdeck.engine.sweep.runner import Progress


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A sweep under way, or one that has ended."""

    outcome: SweepOutcome | None = None
    """What the visits say so far; None before it is planned."""
    progress: Progress | None = None
    """None before it began to look."""
    ended: float | None = None
    """Unix time; None while it goes on."""
    stopped: str | None = None
    """Why it is not whole."""


def describe_optimum(analysis: Analysis) -> str:
    """The optimum and what cannot be told from it."""
    best = analysis.optimum
    if best is None:
        return "no optimum: two rounds were not completed"
    text = f"best k {best.k}"
    if best.tied:
        text += f", tied with {', '.join(map(str, best.tied))}"
    if best.over_target_only is not None:
        text += f": {best.over_target_only} over target-only"
    return text


def describe_end(run: SweepRun) -> str:
    """The end of a sweep as an event."""
    from specdeck.engine.sweep.analysis import schedule_line

    if run.stopped is not None or run.outcome is None:
        return f"sweep stopped: {run.stopped}"
    text, schedule = f"sweep: {describe_optimum(run.outcome.analysis)}", run.outcome.schedule
    return f"{text}; schedule {schedule_line(schedule)}" if schedule else text
