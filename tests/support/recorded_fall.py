"""An engine whose drafts fail from a moment on, in a black box and as traffic that goes on."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from specdeck.engine.blackbox.box import open_box
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import between
from tests.support.engine_state import engine_state
from tests.support.recorded_engine import busy_sample
from tests.support.simulated_traffic import T0, URL, Request, Traffic

FALL = 600
"""Seconds after the beginning at which every request has next to nothing accepted any more."""


def fall(request: Request, t: float) -> float:
    return 0.72 if t < FALL else 0.1


def record_fall(path: Path, end: int, *, since: int = 0, gap: range = range(0)) -> Traffic:
    """A reading a second and cohorts a minute, from `since` on and not in `gap`; the traffic of the
    whole time."""
    traffic = Traffic(1, accept=fall, rate=1.5, step_s=1.0)
    box = open_box(path, URL, name="demo")
    assert box is not None
    before = None
    with closing(box):
        for second in range(end + 1):
            if second and second % 60 == 0:
                traffic.run(60.0, pieces=1)
            if second < since or second in gap:
                before = None
                continue
            accepted = 30.0 * min(second, FALL) + 4.0 * max(0, second - FALL)
            sample = busy_sample(second, t=T0 + second, start=T0, accepted=accepted)
            window = None if before is None else between(before, sample)
            before = sample
            state = engine_state(instance="one", started=T0, step=40 * second)
            box.append(Reading(T0 + second, URL, sample, window, state))
            if second % 60 == 0:
                box.add_cohorts(T0 + second, replace(traffic.tell(), t=T0 + second))
    return traffic
