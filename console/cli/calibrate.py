"""`specdeck sweep --calibrate`: what steps cost, by dummy steps of an idle engine."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from specdeck.console.cli.audit import UserAudit
from specdeck.console.cli.engines import Access
from specdeck.console.cli.measurement import print_at_end
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.calibration import (
    Calibration,
    CalibrationOutcome,
    CalibrationRequest,
    EngineAfter,
    ShapeDone,
)
from specdeck.engine.sweep.calibration import STEPS, TRUE, Shapes, Truth


@dataclass(frozen=True, slots=True)
class SweepOnly:
    """Options of a sweep on traffic, which a calibration has none of."""

    hard: bool
    reference: str | None
    profile: str | None
    streams: int | None

    def refuse(self) -> None:
        """Raises UsageError where one of them was given."""
        if self.hard or self.reference is not None:
            raise UsageError("--calibrate and --hard or --reference are mutually exclusive")
        if self.profile is not None or self.streams is not None:
            raise UsageError(
                "--load and --streams are of --hard and --reference",
                remedy="a calibration requires an engine without requests",
            )


async def calibrate(to: Access, wanted: CalibrationRequest, *, as_json: bool) -> int:
    """Runs the calibration and prints what came of it, whole or not; the exit code."""
    client = to.client()
    work = Calibration(client, wanted, url=to.url, name=to.name, record=UserAudit().add)
    async with (
        print_at_end(client, work, partial(_print, as_json=as_json)),
        aclosing(work.events()) as events,
    ):
        async for event in events:
            if isinstance(event, Shapes):
                shapes = f"{len(event)} shapes of {STEPS} dummy steps"
                log(f"specdeck: {shapes}: {event}; it ends with the first request that comes")
            elif isinstance(event, ShapeDone) and event.done == event.of:
                log(f"calibrate: round {event.round + 1} is complete")
    return 0


def _print(outcome: CalibrationOutcome, *, as_json: bool) -> None:
    if as_json:
        emit(outcome.as_json())
        return
    if outcome.times:
        print_lines(*table_lines(outcome), "", *verdict_lines(outcome))
    for notice in outcome.notices:
        log(f"specdeck: {notice}")


def table_lines(outcome: CalibrationOutcome) -> list[str]:
    """Milliseconds of a step, a line for each batch size and a column for each k."""
    found = {(each.batch, each.k): each.median for each in outcome.times}
    head = "requests" + "".join(f"  {f'k={k}':>7}" for k in outcome.shapes.ks)
    lines = [head + "   ms a step"]
    for batch in outcome.shapes.batches:
        each = [found.get((batch, k)) for k in outcome.shapes.ks]
        cells = "".join(f"  {'–' if s is None else format(s * 1e3, '.1f'):>7}" for s in each)
        lines.append(f"{batch:>8}{cells}")
    return lines


def verdict_lines(outcome: CalibrationOutcome) -> list[str]:
    """How much was measured, how true it is, and who goes by it."""
    steps = sum(len(each.seconds) for each in outcome.times)
    made = f"{len(outcome.times)} of {len(outcome.shapes)} shapes"
    lines = [f"measured   {made}, {steps} dummy steps in {outcome.seconds:.0f} s"]
    if outcome.stopped:
        lines.append(f"stopped    {outcome.stopped}")
    lines.append(f"real       {describe_truth(outcome.truth)}")
    lines.append(f"engine     {_ENGINE[outcome.engine_after]}")
    return lines


_ENGINE: dict[EngineAfter, str] = {
    "intact": "as it was found; its cost model goes by these until real steps tell",
    "restarted": "it was restarted, and has learned nothing of this",
    "silent": "it did not answer after that: see its log",
}


def describe_truth(truth: Truth | None) -> str:
    """Dummy steps beside real ones, in words.

    >>> describe_truth(None)
    'not compared: the engine has not seen steps of these shapes yet'
    >>> describe_truth(Truth(0.94, 0.88, 1.02, 5))
    'dummy steps take 0.94 of real ones (5 shapes, 0.88 to 1.02)'
    """
    if truth is None:
        return "not compared: the engine has not seen steps of these shapes yet"
    shapes = f"{truth.shapes} shape{'s' if truth.shapes > 1 else ''}"
    said = (
        f"dummy steps take {truth.ratio:.2f} of real ones "
        f"({shapes}, {truth.low:.2f} to {truth.high:.2f})"
    )
    return f"{said}: more than {TRUE:.0%} apart" if truth.differs else said
