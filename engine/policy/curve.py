"""Tokens per second by batch size and k, as measured of late, whoever chose the k."""

from __future__ import annotations

from collections import deque

from specdeck.engine.control.tuning import CurvePoint
from specdeck.engine.policy.batches import BOUNDS, first
from specdeck.engine.policy.elapsed import Elapsed
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.tuning.intervals import ratio

_BLOCK_STEPS = 16
_BLOCKS = 40
_FORGET_S = 600.0


class _Cell:
    """The steps of one bucket and one k, in blocks."""

    __slots__ = ("blocks", "committed", "requests", "seconds", "steps")

    def __init__(self) -> None:
        self.blocks: deque[tuple[float, float, int, int]] = deque(maxlen=_BLOCKS)
        """When each ended, its seconds, its tokens and its requests over all steps."""
        self.seconds = 0.0
        self.committed = self.requests = self.steps = 0


class Curve:
    """Sums up settled steps that only decode; what is older than ten minutes is forgotten.

    >>> curve, seen = Curve(), StepSeen(0.0, 2, 3, 3, True, 0.01, 5, 2, 6, (2, 1, 0), 0)
    >>> for _ in range(32):
    ...     curve.add(1, seen)
    >>> [(point.k, point.steps, round(point.tokens_per_second)) for point in curve.points()]
    [(3, 32, 500)]
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], _Cell] = {}
        self._elapsed = Elapsed()
        self._at = (-1, -1)
        self._cell = _Cell()

    def add(self, bucket: int, seen: StepSeen) -> None:
        """Counts a step."""
        if not seen.settled or seen.prefill or seen.seconds is None:
            return
        at = (bucket, seen.k)
        if at != self._at:
            self._at = at
            self._cell = self._cells.setdefault(at, _Cell())
        cell = self._cell
        cell.seconds += seen.seconds
        cell.committed += seen.committed
        cell.requests += seen.requests
        cell.steps += 1
        if cell.steps >= _BLOCK_STEPS:
            now = self._elapsed.at(seen.t)
            cell.blocks.append((now, cell.seconds, cell.committed, cell.requests))
            cell.seconds = 0.0
            cell.committed = cell.requests = cell.steps = 0

    def look(self, t: float) -> None:
        """Has time pass to `t` without a step."""
        self._elapsed.at(t)

    def points(self) -> tuple[CurvePoint, ...]:
        """What was measured, by bucket and k."""
        found = (
            self._point(bucket, k, self._cells[bucket, k]) for bucket, k in sorted(self._cells)
        )
        return tuple(point for point in found if point is not None)

    def _point(self, bucket: int, k: int, cell: _Cell) -> CurvePoint | None:
        now = self._elapsed.seconds
        blocks = [block for block in cell.blocks if now - block[0] <= _FORGET_S and block[1] > 0]
        if not blocks:
            return None
        steps = len(blocks) * _BLOCK_STEPS
        seconds = sum(block[1] for block in blocks)
        committed = sum(block[2] for block in blocks)
        requests = sum(block[3] for block in blocks) / steps
        if not committed:
            return None
        interval = ratio([block[2] for block in blocks], [block[1] for block in blocks])
        return CurvePoint(
            first(bucket),
            BOUNDS[bucket],
            requests,
            k,
            steps,
            seconds / steps,
            committed / seconds,
            1e3 * seconds * requests / committed,
            None if interval is None else interval.low,
            None if interval is None else interval.high,
            now - blocks[-1][0],
        )
