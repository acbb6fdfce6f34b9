"""What dummy steps took: steps of no request, made on an idle engine to learn what a step costs.

They stand in where nothing was measured, and no longer where real steps were. A dummy step is
less than a real one: nothing is scheduled, and nobody is sent a token. That takes as long at
every k, so what real steps of a batch size take longer than dummy ones is added to all of its
k's; a batch size without real steps is given the mean of the others. They are no evidence of what
the engine did: `StepTimes.steps` does not count them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log

ERROR2 = 0.12**2
"""Squared relative error of a step's time that dummy steps tell, beside the other k's."""
WEIGHT = 8.0
"""How many steps one of these is worth where a model is found through all that is known."""

_MOST_STEPS = 64.0
"""The most real steps of one shape that count when the two are compared."""
_LEAST_SHARE = 0.5
"""Of what dummy steps took: real ones are never taken to be faster than that."""


class DummyTime:
    """Dummy steps of one bucket of batch sizes and one k."""

    __slots__ = ("more", "rounds", "size", "taken", "weight")

    def __init__(self, size: float) -> None:
        self.size = size
        self.taken = 0.0
        """The logarithm of their seconds, less the level that all times share."""
        self.rounds = 0
        """How often they were made: `taken` is the mean."""
        self.more = 0.0
        """What a real step takes longer, in the same unit: known by `weight` steps."""
        self.weight = 0.0


class _Row:
    """Dummy steps of one bucket."""

    __slots__ = ("by_k", "more", "weight")

    def __init__(self) -> None:
        self.by_k: dict[int, DummyTime] = {}
        self.more = self.weight = 0.0
        """What its real steps take longer, times `weight`; and how many they are."""


class DummyTimes:
    """What was learned of dummy steps, by bucket and k.

    >>> times = DummyTimes()
    >>> for k, seconds in ((0, 0.010), (3, 0.020)):
    ...     times.add(0, 1, k, log(seconds))
    >>> times.compare(0, 3, log(0.024), steps=8)
    >>> [round(exp(times.expect(0, one)), 3) for one in times.row(0).values()]
    [0.014, 0.024]
    """

    def __init__(self) -> None:
        self._found: dict[int, _Row] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, bucket: int, size: float, k: int, taken: float) -> None:
        """Takes in a round of dummy steps; `taken` is a logarithm, less the shared level."""
        row = self._found.setdefault(bucket, _Row())
        one = row.by_k.get(k)
        if one is None or one.size != size:
            if one is not None:
                _forget(row, one)
            one = row.by_k[k] = DummyTime(size)
        one.rounds += 1
        one.taken += (taken - one.taken) / one.rounds

    def compare(self, bucket: int, k: int, taken: float, steps: float) -> None:
        """Takes in what real steps take there: a logarithm as above, of so many steps.

        It is of as many requests as the dummy steps were, by the model.
        """
        one = self.find(bucket, k)
        if one is None:
            return
        row = self._found[bucket]
        _forget(row, one)
        one.more, one.weight = exp(taken) - exp(one.taken), min(steps, _MOST_STEPS)
        row.more += one.more * one.weight
        row.weight += one.weight

    def expect(self, bucket: int, one: DummyTime) -> float:
        """What real steps of the shape of `one` would take: a logarithm, less the shared level."""
        spent = exp(one.taken)
        return log(max(_LEAST_SHARE * spent, spent + self._find_more(bucket)))

    def _find_more(self, bucket: int) -> float:
        row = self._found[bucket]
        if row.weight >= 1:
            return row.more / row.weight
        known = [row for row in self._found.values() if row.weight >= 1]
        return sum([row.more / row.weight for row in known]) / len(known) if known else 0.0

    def find(self, bucket: int, k: int) -> DummyTime | None:
        """Those of a bucket and a k; None where there were none."""
        row = self._found.get(bucket)
        return None if row is None else row.by_k.get(k)

    def row(self, bucket: int) -> dict[int, DummyTime]:
        """Those of a bucket, by k; not to be changed."""
        row = self._found.get(bucket)
        return {} if row is None else row.by_k

    def __iter__(self) -> Iterator[tuple[int, int, DummyTime]]:
        """Bucket, k and what is known of each."""
        for bucket, row in self._found.items():
            for k, one in row.by_k.items():
                yield bucket, k, one


def _forget(row: _Row, one: DummyTime) -> None:
    """Takes what real steps of one shape said out of its bucket's sums."""
    row.more -= one.more * one.weight
    row.weight -= one.weight
    one.more = one.weight = 0.0
