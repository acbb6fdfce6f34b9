"""For how long something has to be well before it is over, where it comes again and again."""

from __future__ import annotations

AGAIN_S = 600.0
"""What is raised so soon after it was over comes and goes, and has to be well for longer."""
LEAST_WELL_S, MOST_WELL_S = 60.0, 960.0
"""For how long at first, and at most."""


def find_well_s(last_s: float, over_at: float | None, t: float) -> float:
    """For how many seconds it has to be well that is raised at Unix time `t`.

    `last_s` is that of the last time, which was over at `over_at`, None for the first.

    >>> find_well_s(0.0, None, 0.0), find_well_s(0.0, 0.0, 10.0), find_well_s(60.0, 0.0, 10.0)
    (0.0, 60.0, 120.0)
    >>> find_well_s(960.0, 0.0, 10.0), find_well_s(960.0, 0.0, 601.0)
    (960.0, 0.0)
    """
    if over_at is None or not 0 <= t - over_at < AGAIN_S:
        return 0.0
    return min(MOST_WELL_S, max(LEAST_WELL_S, 2 * last_s))
