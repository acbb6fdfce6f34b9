"""A sweep of the console: how far it is, and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdeck.console.state.sweep_run import SweepRun, describe_optimum
from specdeck.console.view.tuning_curve import Measured, Swept
from specdeck.console.widgets.cells import Cell, Row
from specdeck.console.widgets.format import LocalTime, Spelt, at, duration

if TYPE_CHECKING:  # what a sweep needs is not for the first paint
    from specdeck.engine.sweep.runner import Progress


def swept(run: SweepRun | None, local: LocalTime, spelt: Spelt) -> Swept | None:
    """What the curve shows of it; None where it measured nothing and has ended."""
    if run is None:
        return None
    analysis = None if run.outcome is None else run.outcome.analysis
    if run.ended is not None and (analysis is None or not analysis.curve):
        return None
    points = {
        point.k: Measured(
            point.tokens_per_second.value, point.seconds_per_token.value * 1e3,
            point.tokens_per_second.low, point.tokens_per_second.high,
        )
        for point in (analysis.curve if analysis else ())
    }  # fmt: skip
    best = analysis.optimum if analysis else None
    title = "sweep under way" if run.ended is None else f"sweep of {at(run.ended, local)}"
    return Swept(
        points,
        analysis.batch if analysis else None,
        best.k if best else None,
        best.tied if best else (),
        title,
        words(run, stop=spelt("sweep.toggle")),
    )


def words(run: SweepRun, *, stop: str) -> Row:
    """How far it is and the key that stops it, or the verdict."""
    if run.ended is None:
        return Row(
            (Cell(f" {status(run.progress)}", "accent"),), (Cell(f"{stop} stops it ", "muted"),)
        )
    if run.stopped is not None or run.outcome is None:
        return Row((Cell(f" sweep stopped: {run.stopped}", "warn"),))
    return Row((Cell(f" {describe_optimum(run.outcome.analysis)}", "good"),))


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
