"""How long drafts are: against the k that is said to be in force, and against one another."""

from __future__ import annotations

EXCESS = 0.5
"""Draft tokens per draft beyond the k that was set: drafts and their tokens are not counted in one
moment."""

OTHER_LENGTH = 0.05
"""Of the tokens of a draft: drafts that differ by less are as long."""
_LACKS = 0.1
"""Of a token: so much drafts may lack on average of a position that counts as theirs."""


def is_shorter(length: float, than: float) -> bool:
    """Whether drafts of so many tokens on average are shorter than others.

    >>> is_shorter(4.7, than=5.0), is_shorter(4.8, than=5.0)
    (True, False)
    """
    return length < (1 - OTHER_LENGTH) * than


def count_positions(length: float) -> int:
    """The positions that drafts of so many tokens on average have; one at least.

    >>> count_positions(4.95), count_positions(4.5), count_positions(0.4)
    (5, 4, 1)
    """
    return max(1, int(length + _LACKS))


def exceeds(observed_k: float | None, most: float | None) -> bool:
    """Whether the drafts that were counted contradict a k that no draft exceeds; None is not known.

    Shorter ones are a drafter's own affair: n-grams are not always found, and the last tokens of an
    answer have no room.

    >>> exceeds(5.0, 3), exceeds(3.2, 3), exceeds(1.0, 3), exceeds(5.0, None)
    (True, False, False, False)
    """
    return observed_k is not None and most is not None and observed_k >= most + EXCESS
