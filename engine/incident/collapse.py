"""When an engine became worse: the largest lasting fall of a figure, and what it was around it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from specdeck.engine.blackbox.falls import Fall, Figure, read_mean, stand_out
from specdeck.engine.blackbox.summary import OverviewColumn
from specdeck.engine.metrics.serial_correlation import error_of_difference, variance_of_mean

_REACH_S: Final = 300.0
"""Seconds on each side of a moment that are compared."""
_FEWEST: Final = 3
"""Columns on each side."""
_LEAST_FALL: Final = 0.1
"""As a share of what it was: a smaller fall is none that anybody is called for."""
_LEAST_RATIO: Final = 4.0
"""Of the fall to the standard error that the columns around it show."""


def find_fall(columns: Sequence[OverviewColumn], figure: Figure) -> Fall | None:
    """The fall that stands out most of what the columns show; None where nothing fell.

    Columns of which nothing is known are passed over: an engine that is down has not accepted less.
    """
    known = [
        (column.start, mean)
        for column in columns
        if (mean := read_mean(column, figure)) is not None
    ]
    times, values = [t for t, _ in known], [value for _, value in known]
    found: Fall | None = None
    most = _LEAST_RATIO
    for at in range(_FEWEST, len(known) - _FEWEST + 1):
        t = times[at]
        before = values[bisect_left(times, t - _REACH_S) : at]
        after = values[at : bisect_left(times, t + _REACH_S)]
        if len(before) < _FEWEST or len(after) < _FEWEST:
            continue
        was, now = sum(before) / len(before), sum(after) / len(after)
        if was <= 0 or now > was * (1 - _LEAST_FALL):
            continue
        plain = math.sqrt(sum(variance_of_mean(part, 1.0) for part in (before, after)))
        if stand_out(was, now, plain) <= most:
            continue
        ratio = stand_out(was, now, error_of_difference(before, after))
        if ratio > most:
            most, found = ratio, Fall(figure, t, was, now)
    return found
