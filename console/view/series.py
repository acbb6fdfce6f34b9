"""What a chart shows, and which part of it."""

from __future__ import annotations

from specdeck.console.state.engine_state import Track
from specdeck.console.view import figures
from specdeck.console.widgets.blocks import Series
from specdeck.console.widgets.cells import Cell


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
