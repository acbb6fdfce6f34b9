"""Falls of acceptance that went by: it was lost for some seconds, and came back.

`blackbox.falls` lists what stays lower. Half a minute without an accepted draft is as much of an
incident, and may be all that there was of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specdeck.engine.blackbox.deeper_drafts import are_drafts_deeper
from specdeck.engine.blackbox.falls import COLUMN_S, REACH_S, Overviewed, read_mean, split_time
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.summary import OverviewColumn

_LEFT: Final = 0.5
"""Of what it was: what keeps more is no dip."""
_FEWEST: Final = 2
"""Columns of `COLUMN_S` that it lasts at least."""
_FEWEST_BEFORE: Final = 4
"""Columns of which something is known, in the `REACH_S` before."""
_LEAST_RATIO: Final = 4.0
"""Of the loss to the standard deviation of the columns before."""
TOGETHER_S: Final = 15.0
"""Falls of two figures so near each other are one."""


@dataclass(frozen=True, slots=True)
class Dip:
    """Acceptance was at half of what it had been, or less, and came back."""

    start: float
    """Unix time, seconds; so is `end`, its last reading."""
    end: float
    before: float
    """Accepted over drafted tokens in the `REACH_S` before it."""
    low: float
    """The same meanwhile."""

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.start

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"start": self.start, "end": self.end, "before": self.before, "low": self.low}


def list_dips(history: History, start: float, end: float) -> tuple[Dip, ...]:
    """Those from `start` to `end`, Unix seconds, the oldest first; one that goes on at the end is
    none, and neither is one of deeper drafts. Raises SpecdeckError for a record that cannot be
    read."""
    found = find_dips(list(_list_columns(history, start, end)))
    placed = (_place(history, dip) for dip in found)
    return tuple(dip for dip in placed if not _is_of_deeper_drafts(history, dip))


def _is_of_deeper_drafts(history: History, dip: Dip) -> bool:
    before = dip.start - REACH_S, math.nextafter(dip.start, 0.0)
    return are_drafts_deeper(history, before, (dip.start, dip.end), _LEFT)


def _list_columns(history: Overviewed, start: float, end: float) -> Iterator[OverviewColumn]:
    for first, last in split_time(history, start, end):
        origin = math.floor(first / COLUMN_S)
        count = math.ceil(last / COLUMN_S) - origin
        yield from history.overview(origin * COLUMN_S, (origin + count) * COLUMN_S, count)


def find_dips(columns: Sequence[OverviewColumn]) -> list[Dip]:
    """Where columns of `COLUMN_S` are at half of those before, until one is above it again.

    Those of which nothing is known are passed over: without drafts nothing is accepted less.
    """
    found: list[Dip] = []
    usual: list[tuple[float, float]] = []
    low: list[tuple[OverviewColumn, float]] = []
    for column in columns:
        value = read_mean(column, "acceptance")
        if value is None:
            continue
        since = (low[0][0] if low else column).start - REACH_S
        before = [one for t, one in usual if t >= since]
        if len(before) >= _FEWEST_BEFORE and value <= _limit(before):
            low.append((column, value))
            continue
        if len(low) >= _FEWEST:
            mean = sum(one for _, one in low) / len(low)
            found.append(Dip(low[0][0].start, low[-1][0].end, sum(before) / len(before), mean))
        usual += [(one.start, each) for one, each in low]
        low = []
        usual.append((column.start, value))
    return found


def _limit(before: Sequence[float]) -> float:
    """What a column must not be above, to be of a dip."""
    mean = sum(before) / len(before)
    variance = sum((one - mean) ** 2 for one in before) / (len(before) - 1)
    return min(_LEFT * mean, mean - _LEAST_RATIO * math.sqrt(variance))


def _place(history: History, dip: Dip) -> Dip:
    """To the reading, with the figures of all its tokens."""
    middle = (dip.before + dip.low) / 2
    drafted, accepted, start, end = 0.0, 0.0, dip.end, dip.start
    for reading in history.readings(dip.start - COLUMN_S, dip.end + COLUMN_S):
        window = reading.window
        if window is None or window.acceptance_rate is None or window.acceptance_rate > middle:
            continue
        start, end = min(start, reading.t - window.seconds), max(end, reading.t)
        drafted, accepted = drafted + (window.drafted or 0.0), accepted + (window.accepted or 0.0)
    if not drafted or start >= end:
        return dip
    return Dip(start, end, dip.before, accepted / drafted)


def find_near(dips: Iterable[Dip], t: float, within: float) -> Dip | None:
    """The dip that began nearest to a moment, at most so many seconds from it."""
    near = [dip for dip in dips if abs(dip.start - t) <= within]
    return min(near, key=lambda dip: abs(dip.start - t), default=None)
