"""What every k would give, from the position counters of the k's that ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tokens:
    """Expected committed tokens of a request in a step, at one k."""

    k: int
    value: float
    """1 + the expected accepted tokens: the mean acceptance length."""
    extrapolated: bool
    """Whether positions that were never drafted are part of it."""


def tokens_by_k(
    drafted: Sequence[float], accepted: Sequence[float], k_max: int
) -> tuple[Tokens, ...] | None:
    """Expected tokens for k = 0…k_max; None when nothing was drafted.

    `drafted[i]` counts drafts that had position i, `accepted[i]` those whose token there was
    accepted; both may be scaled alike, as shares are. Positions that no draft had are taken to
    be accepted, given the one before, as often as the last observed one was: a guess, and
    marked so.

    >>> [(t.k, round(t.value, 2), t.extrapolated) for t in tokens_by_k([100, 100], [80, 60], 3)]
    [(0, 1.0, False), (1, 1.8, False), (2, 2.4, False), (3, 2.85, True)]
    >>> [round(t.value, 2) for t in tokens_by_k([1.0, 1.0], [0.8, 0.6], 2)]
    [1.0, 1.8, 2.4]
    >>> tokens_by_k([0, 0], [0, 0], 2) is None
    True
    """
    if not drafted or not drafted[0]:
        return None
    found, total, reached, conditional = [Tokens(0, 1.0, False)], 1.0, 1.0, 0.0
    guessed = False
    for position in range(k_max):
        had = drafted[position] if position < len(drafted) else 0
        if had and not guessed:
            share = accepted[position] / had
            conditional = min(1.0, share / reached) if reached else 0.0
            reached = share
        else:
            guessed = True
            reached *= conditional
        total += reached
        found.append(Tokens(position + 1, total, guessed))
    return tuple(found)
