"""Falls of acceptance and of speed, as facts: each has one time and one pair of figures.

What a fall is depends on the record around it alone, and not on what is looked at: the figures of
`REACH_S` on both sides of a moment are compared, at moments that are whole multiples of `COLUMN_S`.
Speed that is lost because nothing is asked for any more is no fall, and neither is acceptance that
is lower because drafts are deeper. Of shorter drafts a larger share is accepted: where they became
shorter, by a policy that answers the fall or by hand, what was accepted of their first tokens tells
of a fall that whole drafts hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import fmean
from typing import Any, Final, Literal, Protocol

from specdeck.engine.blackbox.deeper_drafts import are_drafts_deeper
from specdeck.engine.blackbox.load_end import Read, has_load_ended
from specdeck.engine.blackbox.summary import Extent, OverviewColumn
from specdeck.engine.metrics.draft_length import is_shorter
from specdeck.engine.metrics.serial_correlation import inflate

Figure = Literal["acceptance", "tokens_per_second"]
FIGURES: Final[tuple[Figure, ...]] = ("acceptance", "tokens_per_second")
Silence = Literal["unrecorded", "down", "unknown"]
"""Why a figure is not known of some time: nothing was recorded, the engine did not answer, or it
told no such figure, as one does that drafts nothing."""

COLUMN_S: Final = 5.0
REACH_S: Final = 45.0
"""Seconds on each side of a moment that are compared: a fall lasts at least so long."""
SETTLED_S: Final = 2 * REACH_S
"""After which nothing that is still to come moves a fall: neither its own figures nor a greater
fall beside it."""
_SIDE: Final = int(REACH_S / COLUMN_S)
_CONTEXT: Final = 2 * _SIDE
"""Columns on each side that tell how alike neighbours are; those of an idle engine do not."""
FEWEST: Final = 4
"""Columns of which something is known, on each side."""
NEWEST_S: Final = FEWEST * COLUMN_S
"""Before the end of a record: a fall within it is not seen yet."""
LEAST_SHARE: Final = 0.25
"""Of what it was: smaller falls come and go with the traffic."""
LEAST_RATIO: Final = 5.0
"""Of the fall to the standard error that the columns on both sides show."""
_CLOSE_S: Final = 15.0
"""Around a moment in which the second of the fall is looked for."""
_PART_S: Final = 0.125
"""To which the first reading after a fall is told."""
_SAME_S: Final = 60.0
"""Speed that falls with acceptance is the same fall."""
_PIECE_S: Final = 3600.0
"""Of a long time, what is looked through at once, so that days of a record are never in memory."""


class Overviewed(Read, Protocol):
    """A record of an engine, as far as falls are found in it."""

    @property
    def first(self) -> float:
        """Unix time of the first reading; NaN without any."""

    @property
    def last(self) -> float:
        """The same of the last one."""

    def overview(self, start: float, end: float, columns: int) -> Sequence[OverviewColumn]:
        """The figures of each of so many parts of a stretch of time."""


_ReadMean = Callable[[OverviewColumn], float | None]
"""A figure of a column; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Fall:
    """A figure that fell and stayed below."""

    figure: Figure
    t: float
    """Unix time from which on it is lower, seconds."""
    before: float
    after: float
    since: float | None = None
    """Unix time up to which it was as before, where nothing is known from then to `t`."""
    silence: Silence | None = None
    """Why not."""
    is_of_first: bool = False
    """Whether it is what was accepted of the first tokens of drafts, as shorter ones hide it."""

    @property
    def earliest(self) -> float:
        """Unix time before which it did not fall, seconds."""
        return self.t if self.since is None else self.since

    @property
    def share(self) -> float:
        """How much of it is gone."""
        return 1 - self.after / self.before

    def as_json(self) -> dict[str, Any]:
        """For a script."""
        return {
            "figure": self.figure, "t": self.t, "before": self.before, "after": self.after,
            "since": self.since, "silence": self.silence, "of_first": self.is_of_first,
        }  # fmt: skip


def name_figure(figure: Figure, *, is_of_first: bool) -> str:
    """A figure in words.

    >>> name_figure("acceptance", is_of_first=False), name_figure("acceptance", is_of_first=True)
    ('acceptance', 'acceptance of first tokens')
    """
    if figure == "tokens_per_second":
        return "tokens/s"
    return "acceptance of first tokens" if is_of_first else "acceptance"


def list_falls(history: Overviewed, start: float, end: float) -> tuple[Fall, ...]:
    """The falls from `start` on and before `end`, Unix seconds, the oldest first.

    Those of the last `SETTLED_S` of a record that still grows may yet move. Raises SpecdeckError
    for a record that cannot be read.
    """
    drops = list_drops(history, start, end)
    return tuple(one for one in drops if not is_end_of_load(history, one))


def is_end_of_load(history: Overviewed, fall: Fall) -> bool:
    """Whether the speed is lower only because nothing is asked for any more."""
    return fall.figure == "tokens_per_second" and has_load_ended(history, *_list_sides(fall))


def is_of_deeper_drafts(history: Overviewed, fall: Fall) -> bool:
    """Whether acceptance is lower only because drafts have more tokens: of what they had before, no
    less is accepted than would be a fall."""
    return fall.figure == "acceptance" and are_drafts_deeper(
        history, *_list_sides(fall), 1 - LEAST_SHARE
    )


def _list_sides(fall: Fall) -> tuple[tuple[float, float], tuple[float, float]]:
    """The time before a fall and that after it."""
    return _sides(fall.t) if fall.since is None else _sides_of_gap(fall.since, fall.t)


def list_drops(history: Overviewed, start: float, end: float) -> tuple[Fall, ...]:
    """As `list_falls`, with the ends of the load."""
    found: list[Fall] = []
    for first, last in split_time(history, start, end):
        found += [one for one in _list_around(history, first, last) if first <= one.t < last]
    return tuple(sorted(found, key=lambda one: one.t))


def split_time(history: Overviewed, start: float, end: float) -> Iterator[tuple[float, float]]:
    """The time from `start` to `end`, Unix seconds, that a record knows, in pieces of an hour.

    All but the outer ends are whole multiples of `COLUMN_S`.
    """
    start, end = max(history.first, start), min(history.last, end)
    while start < end:  # never of an empty record: its ends are NaN, which stands first above
        piece = min(end, _column(start + _PIECE_S) * COLUMN_S)
        yield start, piece
        start = piece


def _list_around(history: Overviewed, start: float, end: float) -> list[Fall]:
    """The falls between two moments and some beside them."""
    # One is placed to the second beside the column that it is found at, and may be told already.
    first, last = _column(start - _CLOSE_S - _SAME_S), _column(end + _CLOSE_S + _SAME_S)
    lead = 4 * _SIDE
    origin, count = first - lead, last - first + 1 + 2 * lead
    columns = history.overview(origin * COLUMN_S, (origin + count) * COLUMN_S, count)
    found: list[Fall] = []
    for figure in FIGURES:
        values = [read_mean(column, figure) for column in columns]
        drops = {
            at: fall
            for at in _find_peaks(values)
            if lead // 2 <= at < count - lead // 2
            and (fall := _measure(history, figure, (origin + at) * COLUMN_S)) is not None
            and not is_of_deeper_drafts(history, fall)
        }
        if figure == "acceptance":
            drops |= {
                at: fall
                for at in _find_behind_shorter_drafts(columns, drops)
                if lead // 2 <= at < count - lead // 2
                and (fall := _measure(history, figure, (origin + at) * COLUMN_S, is_of_first=True))
            }
        ends = [_column(one.t) - origin for one in drops.values() if is_end_of_load(history, one)]
        for at in _find_hidden(values, ends):
            if at not in drops and lead <= at < count - lead:
                fall = _measure(history, figure, (origin + at) * COLUMN_S)
                if fall is not None and not is_of_deeper_drafts(history, fall):
                    drops[at] = fall
        for at, fall in sorted(drops.items()):
            if lead <= at < count - lead and not _is_told(found, fall):
                found.append(fall)
    return found


def _find_behind_shorter_drafts(
    columns: Sequence[OverviewColumn], told: Iterable[int]
) -> Iterator[int]:
    """Where less was accepted of the first tokens of drafts, which became shorter, and no fall of
    whole ones, by its column, is `told` of near it."""
    known = sorted(told)
    for at in _find_peaks([read_first_accepted(one) for one in columns]):
        if not any(abs(one - at) <= _SIDE for one in known) and are_shorter(
            columns[max(0, at - _SIDE) : at], columns[at : at + _SIDE]
        ):
            yield at


def are_shorter(before: Sequence[OverviewColumn], after: Sequence[OverviewColumn]) -> bool:
    """Whether drafts had fewer tokens on average in the columns `after` than in those `before`."""
    was, now = (
        [one.draft_length for one in side if one.draft_length is not None]
        for side in (before, after)
    )
    return bool(was and now) and is_shorter(fmean(now), fmean(was))


def _find_hidden(values: Sequence[float | None], ends: Sequence[int]) -> Iterator[int]:
    """Where a fall stands out before an end of the load, by its column, that stands out more."""
    if not ends:
        return
    idle = {end + n for end in ends for n in range(_SIDE)}
    for at in _find_peaks([None if n in idle else one for n, one in enumerate(values)]):
        if any(at < end <= at + _SIDE for end in ends):
            yield at


def _column(t: float) -> int:
    return math.floor(t / COLUMN_S)


def read_mean(column: OverviewColumn, figure: Figure) -> float | None:
    """A figure of a column; None where it is not known."""
    extent: Extent | None = column.acceptance if figure == "acceptance" else column.tokens
    return None if extent is None else extent.mean


def read_first_accepted(column: OverviewColumn) -> float | None:
    """What was accepted of the first tokens of drafts in a column; None where it is not known."""
    return column.first_accepted


def _is_told(found: Sequence[Fall], fall: Fall) -> bool:
    return any(one.figure != fall.figure and abs(one.t - fall.t) <= _SAME_S for one in found)


def _find_peaks(values: Sequence[float | None]) -> Iterator[int]:
    """Where a fall stands out more than anywhere within `REACH_S` of it."""
    ratios = _list_ratios(values)
    for at, ratio in enumerate(ratios):
        if ratio > 0.0:
            before = ratios[max(0, at - _SIDE) : at]
            after = ratios[at + 1 : at + 1 + _SIDE]
            if ratio > max(before, default=0.0) and ratio >= max(after, default=0.0):
                yield at


def _list_ratios(values: Sequence[float | None]) -> list[float]:
    """By how many standard errors a figure is lower after the beginning of a column than before.

    0 where it is not, or by too little.

    >>> ratios = _list_ratios([0.5, 0.6] * 6 + [None, 0.1, 0.2] * 6)
    >>> max(range(30), key=lambda at: ratios[at]), any(_list_ratios([0.5, 0.6] * 20))
    (12, False)
    """
    known = [0.0 if value is None else 1.0 for value in values]
    plain = [value or 0.0 for value in values]
    counts, sums, squares = (
        (0.0, *accumulate(each)) for each in (known, plain, [value**2 for value in plain])
    )

    def side(start: int, end: int) -> tuple[float, float, float]:
        """How many, their mean, the variance of that mean."""
        start, end = max(0, start), min(len(values), end)
        n = counts[end] - counts[start]
        if n < FEWEST:
            return 0.0, 0.0, 0.0
        mean = (sums[end] - sums[start]) / n
        spread = max(0.0, (squares[end] - squares[start]) - n * mean**2)
        return n, mean, spread / (n - 1) / n

    found = [0.0] * len(values)
    for at in range(len(values)):
        n, was, error = side(at - _SIDE, at)
        m, now, other = side(at, at + _SIDE)
        if n and m and was > 0 and now <= was * (1 - LEAST_SHARE):
            ratio = stand_out(was, now, math.sqrt(error + other))
            if ratio > LEAST_RATIO:
                parts = values[max(0, at - _CONTEXT) : at], values[at : at + _CONTEXT]
                inflation = inflate(*([one for one in part if one] for part in parts))
                ratio = stand_out(was, now, math.sqrt((error + other) * inflation))
            found[at] = ratio if ratio > LEAST_RATIO else 0.0
    return found


def stand_out(was: float, now: float, error: float) -> float:
    """By how many standard errors a figure fell; `error` is what the columns around it show.

    One that never moved but once has no error of its own: a hundredth of it is one.
    """
    return (was - now) / max(error, 0.01 * was)


def compare_sides(
    history: Overviewed, figure: Figure, t: float, since: float | None = None
) -> tuple[float, float] | None:
    """The mean of a figure before a moment and from it on, `REACH_S` each; None where one of them
    is not known. A reading at `t` itself is the first one after it. With `since` what was before
    that is compared, as nothing is known of the time from then to `t`.
    """
    sides = _sides(t) if since is None else _sides_of_gap(since, t)
    return _compare(history, partial(read_mean, figure=figure), sides)


def _compare(
    history: Overviewed, read: _ReadMean, sides: Iterable[tuple[float, float]]
) -> tuple[float, float] | None:
    was, now = (read(history.overview(first, last, 1)[0]) for first, last in sides)
    return None if was is None or now is None else (was, now)


def find_fall_across(
    history: Overviewed, figure: Figure, since: float, t: float
) -> tuple[float, float] | None:
    """What a figure was up to `since` and is from `t` on, where it is lower by as much as a fall
    and nothing is known of the time between; None where it is not, or too little is known.
    """
    values = [
        read_mean(column, figure)
        for start, end in _sides_of_gap(since, t)
        for column in history.overview(start, end, _SIDE)
    ]
    return compare_sides(history, figure, t, since) if _list_ratios(values)[_SIDE] else None


def _sides(t: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """The time before a moment and that from it on."""
    return (t - REACH_S, math.nextafter(t, 0.0)), (t, t + REACH_S)


def _sides_of_gap(since: float, t: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """The time before a gap and that after it; a reading at its end may have a window over all of
    it."""
    return (since - REACH_S, since), (math.nextafter(t, math.inf), t + REACH_S)


def _measure(
    history: Overviewed, figure: Figure, t: float, *, is_of_first: bool = False
) -> Fall | None:
    """A fall at about `t`, to its second, with the figures of the time around it."""
    read = read_first_accepted if is_of_first else partial(read_mean, figure=figure)

    def list_means(start: float, end: float, columns: int) -> list[float | None]:
        return [read(one) for one in history.overview(start, end, columns)]

    if (figures := _compare(history, read, _sides(t))) is None:
        return None
    # Where what stands above the middle of both is all before, and what stands below it all after.
    middle = sum(figures) / 2
    seconds = list_means(t - _CLOSE_S, t + _CLOSE_S, int(2 * _CLOSE_S))
    above = [0.0, *accumulate(0.0 if one is None else one - middle for one in seconds)]
    best = max(range(len(above)), key=lambda n: (above[n], -abs(n - _CLOSE_S)))
    t = t - _CLOSE_S + best
    figures = _compare(history, read, _sides(t))
    if figures is None or figures[0] <= 0:
        return None
    # Whoever looks at the moment of the fall sees the first reading of what is lower.
    parts = list_means(t, t + COLUMN_S, int(COLUMN_S / _PART_S))
    first = next((n for n, one in enumerate(parts) if one is not None), -1)
    return Fall(figure, t + (first + 1) * _PART_S, *figures, is_of_first=is_of_first)
