"""The list that vLLM's scheduler looks k up in by batch size, filled in place.

A policy may move k at every step and mostly moves it at one bucket of batch sizes, so only the
buckets whose k is another one are written: a list for a thousand seats takes 30 µs to fill.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdeck.engine.policy.table import BUCKETS, first


class Lookup:
    """Writes tables of a policy (engine.policy.table) into the list.

    >>> lookup = Lookup([5] * 6)
    >>> lookup.write((4, 4, 3, *[2] * 19))
    >>> lookup.entries
    [4, 4, 4, 3, 2, 2]
    >>> lookup.write((4, 1, 3, *[2] * 19))
    >>> lookup.entries
    [4, 4, 1, 3, 2, 2]
    """

    def __init__(self, entries: list[int]) -> None:
        """`entries` has a k for every number of requests from 0; it may be held elsewhere too."""
        self.entries = entries
        self._written: Sequence[int] | None = None
        """The table that the entries are of; None where they are not known to be of one."""
        last = len(entries)
        starts = [0, *(min(first(place), last) for place in range(1, BUCKETS))]
        self._spans = list(zip(starts, [*starts[1:], last], strict=True))
        """By bucket: the first entry, and the first one after it."""

    def __len__(self) -> int:
        return len(self.entries)

    def write(self, table: Sequence[int]) -> None:
        """Has every batch size be told the k that `table` has for its bucket."""
        written, self._written = self._written, None
        if table.count(table[0]) == len(table):
            self.entries[:] = [table[0]] * len(self.entries)
        elif written is None:
            for k, (start, end) in zip(table, self._spans, strict=True):
                self.entries[start:end] = [k] * (end - start)
        else:
            for k, before, (start, end) in zip(table, written, self._spans, strict=True):
                if k != before:
                    self.entries[start:end] = [k] * (end - start)
        self._written = tuple(table)

    def restore(self, entries: Sequence[int]) -> None:
        """Puts entries back that are of no table."""
        self._written = None
        self.entries[:] = entries
