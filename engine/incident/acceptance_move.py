"""How acceptance moved, of drafts as long as the shorter ones.

Of longer drafts a smaller share is accepted, as each token needs those before it: where k was
changed, by a policy that saw acceptance fall or by hand, whole drafts tell nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from specdeck.engine.metrics.draft_length import OTHER_LENGTH, count_positions

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


class Drafted(Protocol):
    """What was drafted in a stretch of time, or for some requests; None is not known."""

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens."""

    @property
    def observed_k(self) -> float | None:
        """Tokens of a draft."""

    def accepted_of_first(self, depth: int) -> float | None:
        """What was accepted of the first `depth` tokens of drafts, as a share."""


def compare_acceptance(before: Drafted | None, after: Drafted | None) -> AcceptanceMove | None:
    """How acceptance moved; None where it is not known of both."""
    if before is None or after is None or before.acceptance is None or after.acceptance is None:
        return None
    if (depth := find_common_depth(before.observed_k, after.observed_k)) is not None:
        was, now = (one.accepted_of_first(depth) for one in (before, after))
        if was is not None and now is not None:
            return AcceptanceMove(was, now, depth)
    return AcceptanceMove(before.acceptance, after.acceptance)
