"""The upper end of a chart's axis."""

from __future__ import annotations

import math

_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def nice(peak: float) -> float:
    """The smallest round number that is not below `peak`.

    >>> [nice(peak) for peak in (0.0, 0.7, 7.0, 512.0, 1001.0)]
    [1.0, 0.8, 8.0, 600.0, 1500.0]
    """
    if peak <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(peak))
    return round(next(step for step in _STEPS if step * unit >= peak * (1 - 1e-9)) * unit, 9)


def top(previous: float | None, peak: float) -> float:
    """The axis' end for values up to `peak`, kept as long as it serves.

    A new scale repaints the whole chart, so it falls only when the curve has sunk
    well below the middle.

    >>> top(None, 500.0), top(600.0, 590.0), top(600.0, 200.0), top(600.0, 610.0)
    (600.0, 600.0, 300.0, 800.0)
    """
    if previous is not None and 0.4 * previous <= peak <= previous:
        return previous
    return nice(peak * 1.1)
