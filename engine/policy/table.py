"""k by batch size: the buckets, and the table that a policy answers with, and why.

The buckets are narrow enough that a step costs the same throughout one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from specdeck.engine.policy.reason import Reason

BOUNDS = (
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048
)  # fmt: skip
"""The largest batch size of each bucket; the last one holds everything above it too."""

BUCKETS = len(BOUNDS)
BY_SIZE = tuple(min(bisect_left(BOUNDS, max(size, 1)), BUCKETS - 1) for size in range(2049))
"""The bucket of each batch size up to the largest of them."""


def bucket(size: int) -> int:
    """The bucket of a batch size.

    >>> [bucket(size) for size in (-5_000, 0, 1, 2, 3, 4, 5, 6, 7, 9_999)]
    [0, 0, 0, 1, 2, 3, 4, 4, 5, 21]
    """
    return BY_SIZE[max(size, 0)] if size < 2049 else BUCKETS - 1


def first(number: int) -> int:
    """The smallest batch size of a bucket.

    >>> first(0), first(4), first(21)
    (1, 5, 1537)
    """
    return BOUNDS[number - 1] + 1 if number else 1


def span(number: int) -> str:
    """The batch sizes of a bucket, in words.

    >>> span(0), span(4), span(21)
    ('1', '5-6', 'above 1536')
    """
    low, high = first(number), BOUNDS[number]
    if number == BUCKETS - 1:
        return f"above {low - 1}"
    return str(low) if low == high else f"{low}-{high}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The k for the next step, by bucket of batch sizes.

    The same object is answered as long as nothing changes, so that `is` tells.
    """

    table: tuple[int, ...]
    """k for each of `BUCKETS`."""
    probing: bool = False
    """Whether the table is a short try, not the policy's choice."""
    reason: Reason | None = None
    """Why the choice is what it is; None as long as nothing moved."""

    def k(self, requests: int) -> int:
        """The k for a batch size."""
        return self.table[bucket(requests)]


def everywhere(k: int, *, reason: Reason | None = None) -> Decision:
    """`k` at every batch size.

    >>> everywhere(3).k(200)
    3
    """
    return Decision((k,) * BUCKETS, reason=reason)
