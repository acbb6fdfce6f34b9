"""Whether drafts are longer than the k that is said to be in force."""

from __future__ import annotations

EXCESS = 0.5
"""Draft tokens per draft beyond the k that was set: drafts and their tokens are not counted in one
moment."""


def exceeds(observed_k: float | None, most: float | None) -> bool:
    """Whether the drafts that were counted contradict a k that no draft exceeds; None is not known.

    Shorter ones are a drafter's own affair: n-grams are not always found, and the last tokens of an
    answer have no room.

    >>> exceeds(5.0, 3), exceeds(3.2, 3), exceeds(1.0, 3), exceeds(5.0, None)
    (True, False, False, False)
    """
    return observed_k is not None and most is not None and observed_k >= most + EXCESS
