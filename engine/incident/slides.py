"""Figures that went down little by little: lower at the end of a time than at its beginning.

`blackbox.falls` compares 45 s with 45 s, in which what slides loses next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Final

from specdeck.engine.blackbox.deeper_drafts import are_drafts_deeper
from specdeck.engine.blackbox.falls import (
    COLUMN_S,
    FEWEST,
    LEAST_RATIO,
    LEAST_SHARE,
    REACH_S,
    Fall,
    Figure,
    Overviewed,
    are_shorter,
    read_first_accepted,
    read_mean,
    stand_out,
)
from specdeck.engine.metrics.serial_correlation import error_of_difference

_PARTS: Final = 12
"""In which a time is looked at, each of `REACH_S` at least."""
_FEWEST_PARTS: Final = 4
_MOST_COLUMNS: Final = 24
"""Of a part."""
_MOST_RISE: Final = 1 / 3
"""Of what was lost: what comes back by more goes up and down, and does not slide."""
_EXPLAINED: Final = 0.5
"""Of what was lost: falls that have so much of it tell of it already."""


@dataclass(frozen=True, slots=True)
class Slide:
    """A figure that is lower at the end of a time than at its beginning."""

    figure: Figure
    start: float
    """Unix time, seconds; so is `end`."""
    end: float
    before: float
    """In the first part of the time."""
    after: float
    """In the last one."""
    is_steady: bool
    """Whether it went down only; else it went up and down between."""
    is_of_first: bool = False
    """Whether it is what was accepted of the first tokens of drafts, as shorter ones hide it."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start

    def as_json(self) -> Mapping[str, Any]:
        """Plain values."""
        return asdict(self)


def find_slide(
    history: Overviewed, figure: Figure, start: float, end: float, falls: Sequence[Fall]
) -> Slide | None:
    """The slide of a figure from `start` to `end`, Unix seconds; None where it is about as high in
    the end, where too little is known, where drafts are deeper, and where `falls` tell of most of
    it.

    Raises SpecdeckError for a record that cannot be read.
    """
    start, end = max(history.first, start), min(history.last, end)
    if not end - start >= _FEWEST_PARTS * REACH_S:  # nor of an empty record, whose ends are NaN
        return None
    count = min(_PARTS, int((end - start) / REACH_S))
    width = min(_MOST_COLUMNS, int((end - start) / count / COLUMN_S))
    columns = history.overview(start, end, count * width)
    parts = [columns[n : n + width] for n in range(0, len(columns), width)]
    slide = compare_parts(
        figure, start, end, [[read_mean(one, figure) for one in part] for part in parts]
    )
    told = sum(one.before - one.after for one in falls if one.figure == figure)
    if slide is None and figure == "acceptance" and are_shorter(parts[0], parts[-1]):
        firsts = [[read_first_accepted(one) for one in part] for part in parts]
        slide = compare_parts(figure, start, end, firsts)
        if slide is None or told >= _EXPLAINED * (slide.before - slide.after):
            return None
        return replace(slide, is_of_first=True)
    if slide is None:
        return None
    part = (end - start) / count
    sides = (slide.start, slide.start + part), (slide.end - part, slide.end)
    if figure == "acceptance" and are_drafts_deeper(history, *sides, 1 - LEAST_SHARE):
        return None
    return None if told >= _EXPLAINED * (slide.before - slide.after) else slide


def compare_parts(
    figure: Figure, start: float, end: float, parts: Sequence[Sequence[float | None]]
) -> Slide | None:
    """The slide of a figure over parts of the same length, of each of which some columns are known.

    >>> compare_parts("acceptance", 0, 60, [[0.6 - 0.05 * n] * 4 for n in range(6)]).is_steady
    True
    >>> compare_parts("acceptance", 0, 60, [[0.6, 0.5, 0.6, 0.5]] * 6) is None
    True
    """
    span = (end - start) / len(parts)
    known = [
        (n, [value for value in part if value is not None])
        for n, part in enumerate(parts)
        if sum(value is not None for value in part) >= FEWEST
    ]
    if len(known) < _FEWEST_PARTS:
        return None
    levels = [sum(part) / len(part) for _, part in known]
    was, now = levels[0], levels[-1]
    error = error_of_difference(known[0][1], known[-1][1])
    if was <= 0 or now > was * (1 - LEAST_SHARE) or stand_out(was, now, error) <= LEAST_RATIO:
        return None
    lowest, rise = was, 0.0
    for level in levels:
        lowest = min(lowest, level)
        rise = max(rise, level - lowest)
    is_steady = rise <= _MOST_RISE * (was - now)
    if not is_steady and now > median(levels) * (1 - LEAST_SHARE):
        return None  # high in the beginning, and not low in the end: it wavers
    first, last = start + span * known[0][0], start + span * (known[-1][0] + 1)
    return Slide(figure, first, last, was, now, is_steady)
