"""How long an engine's threads waited for a CPU in a stretch of time, out of its counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window, between

_SECONDS = 0.5
"""Watched at least, for a share."""


@dataclass(frozen=True, slots=True)
class CpuWait:
    """How long threads waited for a CPU in one stretch of time, as shares of it."""

    start: float
    """Unix time, seconds."""
    end: float
    waiting: float
    """By a thread that computes, of the worker that waited longest."""
    most: float
    """By it or by the engine core, as far as a worker was not asleep: the most that waiting can
    have delayed steps by."""
    throttled: float | None = None
    """That a quota kept the engine from running; None where that is not known."""


def read_wait(window: Window | None, start: float, end: float) -> CpuWait | None:
    """What a window says; None where threads were not watched.

    >>> window = Window(10.0, cpu_watched=10.0, core_ran=1.0, core_waited=8.0, worker_ran=4.0,
    ...                 worker_waited=1.0)
    >>> found = read_wait(window, 0.0, 10.0)
    >>> round(found.waiting, 3), round(found.most, 3)
    (0.1, 0.46)
    """
    if window is None or not (window.cpu_watched or 0.0) >= _SECONDS:
        return None
    watched, core = window.cpu_watched, window.core_waited
    waited, ran = window.worker_waited, window.worker_ran
    if watched is None or (waited is None and core is None):
        return None
    throttled = None if window.cpu_throttled is None else _share(window.cpu_throttled, watched)
    if waited is None or ran is None:  # the workers are on other machines
        return CpuWait(start, end, 0.0, _share(core or 0.0, watched), throttled)
    waiting = _share(waited, watched)
    # While a worker sleeps nothing but it delays the step.
    spun = _share(core or 0.0, watched) * _share(ran + waited, watched)
    return CpuWait(start, end, waiting, 1 - (1 - waiting) * (1 - spun), throttled)


def read_waits(samples: Sequence[Sample | None]) -> tuple[CpuWait, ...]:
    """What several looks say, piece by piece; empty where threads were not watched."""
    known = [one for one in samples if one is not None]
    found = (read_wait(between(older, newer), older.t, newer.t) for older, newer in pairwise(known))
    return tuple(one for one in found if one is not None)


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))
