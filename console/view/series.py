"""What a chart shows, and which part of it."""

from __future__ import annotations

from dataclasses import dataclass

from specdeck.console.state.engine_state import Track
from specdeck.console.view import figures
from specdeck.console.widgets.cells import BLANK, Cell


def first_shown(total: int, width: int) -> int:
    """The sample in the leftmost column, of `total` samples on `width` columns.

    A full chart jumps left by a quarter of its width: between two jumps only one
    column changes.

    >>> [first_shown(total, 40) for total in (0, 40, 41, 50, 51)]
    [0, 0, 10, 10, 20]
    """
    if width <= 0 or total <= width:
        return 0
    jump = max(1, width // 4)
    return -(-(total - width) // jump) * jump


@dataclass(frozen=True, slots=True)
class Series:
    """What a chart shows."""

    values: tuple[float | None, ...] = ()
    """The latest ones; None breaks the line."""
    total: int = 0
    """Values so far, those included that are no longer kept."""
    latest: Cell = BLANK
    marks: tuple[tuple[int, str], ...] = ()
    """Where something changed, counted like `total`, and what."""
    times: tuple[float, ...] = ()
    """Unix time of each value."""

    def shown(self, width: int) -> tuple[int, tuple[float | None, ...]]:
        """The index of the leftmost column, and the values from there on."""
        first = max(first_shown(self.total, width), self.total - len(self.values))
        return first, self.values[len(self.values) - (self.total - first) :]


EMPTY = Series()
"""Before the first reading."""


def tokens(track: Track) -> Series:
    """Tokens per second over time."""
    values = tuple(point.tokens for point in track.points)
    return _series(track, values, figures.tokens(track))


def acceptance(track: Track) -> Series:
    """The acceptance rate over time."""
    values = tuple(point.acceptance for point in track.points)
    return _series(track, values, figures.acceptance(track))


def _series(track: Track, values: tuple[float | None, ...], latest: Cell) -> Series:
    marks = tuple((mark.at, mark.label) for mark in track.marks)
    times = tuple(point.t for point in track.points)
    return Series(values, track.total, latest, marks, times)
