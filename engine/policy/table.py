"""k by batch size: the buckets, and the table that a policy answers with, and why.

The buckets are narrow enough that a step costs the same throughout one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

BOUNDS = (
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048
)  # fmt: skip
"""The largest batch size of each bucket; the last one holds everything above it too."""

BUCKETS = len(BOUNDS)
_BY_SIZE = tuple(min(bisect_left(BOUNDS, max(size, 1)), BUCKETS - 1) for size in range(2049))


def bucket(size: int) -> int:
    """The bucket of a batch size.

    >>> [bucket(size) for size in (0, 1, 2, 3, 4, 5, 6, 7, 9_999)]
    [0, 0, 1, 2, 3, 4, 4, 5, 21]
    """
    return _BY_SIZE[size] if size < 2049 else BUCKETS - 1


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
class Reason:
    """Why k moved, in figures; `str()` of it is the line an operator reads."""

    before: int
    after: int
    batch: str
    """Batch sizes for which it moved, such as `5-6`."""
    positions: tuple[int, int]
    """First and last position, from 1, that the two k's do not share."""
    accepted: float
    """Of the drafts, the share whose token at these positions was accepted, on average."""
    drafts: int
    """Drafts that this rests on."""
    cost_s: float
    """What a step at the larger k costs more, seconds; negative when it is less."""
    gain: float
    """Expected gain in committed tokens per second, as a share."""
    extrapolated: bool = False
    """Whether a step at the new k was never timed at this batch size."""

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(Reason(5, 3, "8", (4, 5), 0.09, 2000, 0.0018, 0.07))
        k 5 → 3: positions 4 and 5 accepted 9 % in the last 2,000 drafts, a step costs 1.8 ms \
more; expected +7 %
        """
        first, last = self.positions
        where = (
            f"position {first}"
            if first == last
            else f"positions {first}{' and ' if last == first + 1 else ' to '}{last}"
        )
        more = "more" if self.cost_s >= 0 else "less"
        guess = " (step time not measured yet)" if self.extrapolated else ""
        return (
            f"k {self.before} → {self.after}: {where} accepted {self.accepted * 100:.0f} % in the "
            f"last {self.drafts:,} drafts, a step costs {_milliseconds(abs(self.cost_s))} ms "
            f"{more}{guess}; expected {self.gain * 100:+.0f} %"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The k for the next step, by bucket of batch sizes.

    The same object is answered as long as nothing changes, so that `is` tells.
    """

    table: tuple[int, ...]
    """k for each of `BUCKETS`."""
    probing: bool = False
    """Whether the table is a short try, not the policy's choice."""
    reason: str | None = None
    """Why the choice is what it is, in words; None as long as nothing moved."""

    def k(self, requests: int) -> int:
        """The k for a batch size."""
        return self.table[bucket(requests)]


def everywhere(k: int, *, reason: str | None = None) -> Decision:
    """`k` at every batch size.

    >>> everywhere(3).k(200)
    3
    """
    return Decision((k,) * BUCKETS, reason=reason)


def _milliseconds(seconds: float) -> str:
    """Two digits that matter.

    >>> _milliseconds(0.0018), _milliseconds(0.0123), _milliseconds(0.00004)
    ('1.8', '12', '0.04')
    """
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"
