"""How acceptance moved, of drafts as long as the shorter ones.

Of longer drafts a smaller share is accepted, as each token needs those before it: where k was
changed, by a policy that saw acceptance fall or by hand, whole drafts tell nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specdeck.engine.metrics.draft_length import OTHER_LENGTH, count_positions
from specdeck.engine.protocol.cohorts import CohortCounts

HELD: Final = 0.85
"""Of what was accepted before: with so much left acceptance did not fall."""


@dataclass(frozen=True, slots=True)
class AcceptanceMove:
    """What was accepted before a moment and after it."""

    before: float
    after: float
    depth: int | None = None
    """Tokens of a draft that are compared; None where drafts were as long before as after."""

    @property
    def has_held(self) -> bool:
        """Whether it is about as high as before."""
        return self.after >= HELD * self.before

    @property
    def of(self) -> str:
        """Of what it is a share.

        >>> AcceptanceMove(0.42, 0.1).of, AcceptanceMove(0.8, 0.45, 1).of
        ('tokens drafted', 'the first token of drafts')
        >>> AcceptanceMove(0.7, 0.4, 3).of
        'the first 3 tokens of drafts'
        """
        if self.depth is None:
            return "tokens drafted"
        tokens = "token" if self.depth == 1 else f"{self.depth} tokens"
        return f"the first {tokens} of drafts"


def find_common_depth(before: float | None, after: float | None) -> int | None:
    """How many tokens drafts of these lengths have in common; None where they are as long, or it is
    not known how long they are.

    >>> find_common_depth(8.0, 1.0), find_common_depth(3.9, 5.0), find_common_depth(5.0, 4.9)
    (1, 4, None)
    """
    if before is None or after is None or abs(after - before) <= OTHER_LENGTH * before:
        return None
    return count_positions(min(before, after))


def compare_counts(
    before: CohortCounts | None, after: CohortCounts | None
) -> AcceptanceMove | None:
    """How the acceptance of some requests moved; None where nothing was drafted for one side."""
    if before is None or after is None:
        return None
    was, now = before.acceptance, after.acceptance
    if was is None or now is None:
        return None
    depth = find_common_depth(*(one.drafted / max(1, one.drafts) for one in (before, after)))
    if depth is not None:
        old, new = (_accepted_of_first(one, depth) for one in (before, after))
        if old is not None and new is not None:
            return AcceptanceMove(old, new, depth)
    return AcceptanceMove(was, now)


def _accepted_of_first(counts: CohortCounts, depth: int) -> float | None:
    drafted = sum(counts.drafted_per_position[:depth])
    return sum(counts.accepted_per_position[:depth]) / drafted if drafted else None
