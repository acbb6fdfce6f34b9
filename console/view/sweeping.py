"""A sweep of the console: how far it is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdeck.console.view.tuning_curve import Measured, Swept
from specdeck.console.widgets.cells import Cell, Row
from specdeck.console.widgets.format import LocalTime, Spelt, at, duration
from specdeck.engine.sweep.analysis import schedule_line

if TYPE_CHECKING:  # what a sweep needs is not for the first paint
    from specdeck.engine.sweep.analysis import Analysis
    from specdeck.engine.sweep.runner import Progress


@dataclass(frozen=True, slots=True)
class Run:
    """A sweep at one moment."""

    outcome: Analysis
    progress: Progress | None = None
    """None before it began to look."""
    ended: float | None = None
    """Unix time; None while it goes on."""
    stopped: str | None = None
    """Why it is not whole."""
    schedule: list[list[int]] | None = None
    """k by batch size, when it has ended."""


def swept(run: Run | None, local: LocalTime, spelt: Spelt) -> Swept | None:
    """What the curve shows of it; None where it measured nothing and has ended."""
    if run is None or (run.ended is not None and not run.outcome.curve):
        return None
    points = {
        point.k: Measured(
            point.tokens_per_second.value, point.seconds_per_token.value * 1e3,
            point.tokens_per_second.low, point.tokens_per_second.high,
        )
        for point in run.outcome.curve
    }  # fmt: skip
    best = run.outcome.optimum
    title = "sweep under way" if run.ended is None else f"sweep of {at(run.ended, local)}"
    return Swept(
        points,
        run.outcome.batch,
        best.k if best else None,
        best.tied if best else (),
        title,
        words(run, stop=spelt("sweep.toggle")),
    )


def words(run: Run, *, stop: str) -> Row:
    """How far it is and the key that stops it, or the verdict."""
    if run.ended is None:
        return Row(
            (Cell(f" {status(run.progress)}", "accent"),), (Cell(f"{stop} stops it ", "muted"),)
        )
    if run.stopped is not None:
        return Row((Cell(f" sweep stopped: {run.stopped}", "warn"),))
    return Row((Cell(f" {verdict(run.outcome)}", "good"),))


def status(progress: Progress | None) -> str:
    """How far it is.

    >>> from specdeck.engine.sweep.runner import Progress
    >>> status(Progress(12, 54, 3, 42.0)), status(Progress(0, 54, None, 65.0))
    ('sweep: 12 of 54 visits, k 3, 42 s left', 'sweep: waiting for traffic')
    """
    if progress is None or (progress.k is None and not progress.done):
        return "sweep: waiting for traffic"
    where = "" if progress.k is None else f", k {progress.k}"
    return (
        f"sweep: {progress.done} of {progress.of} visits{where}, "
        f"{duration(progress.seconds_left)} left"
    )


def verdict(outcome: Analysis) -> str:
    """The optimum and what cannot be told from it."""
    best = outcome.optimum
    if best is None:
        return "no optimum: two rounds were not completed"
    text = f"best k {best.k}"
    if best.tied:
        text += f", tied with {', '.join(map(str, best.tied))}"
    if best.over_target_only is not None:
        text += f": {best.over_target_only} over target-only"
    return text


def told(run: Run) -> str:
    """The end of a sweep as an event."""
    if run.stopped is not None:
        return f"sweep stopped: {run.stopped}"
    text = f"sweep: {verdict(run.outcome)}"
    return f"{text}; schedule {schedule_line(run.schedule)}" if run.schedule else text
