"""Everything that the live screen shows, from the tracks of its engines."""

from __future__ import annotations

from dataclasses import dataclass

from specdeck.console.state.engine_state import Track
from specdeck.console.view import feed, figures, panels, series
from specdeck.console.widgets.blocks import EMPTY_SERIES, Series
from specdeck.console.widgets.cells import NOTHING, Bar, Row, fade_row
from specdeck.console.widgets.format import LocalTime, Spelt


@dataclass(frozen=True, slots=True)
class Live:
    """One moment of the live screen; each field feeds one widget."""

    identity: Row = NOTHING
    engines: Row = NOTHING
    control: Row = NOTHING
    notice: tuple[Row, ...] = ()
    tokens: Series = EMPTY_SERIES
    acceptance: Series = EMPTY_SERIES
    positions: tuple[Bar, ...] = ()
    speculation: tuple[Row, ...] = ()
    traffic: tuple[Row, ...] = ()
    gpu: Row = NOTHING
    events: tuple[Row, ...] = ()
    compact: tuple[Row, ...] = ()


def live(
    track: Track,
    tracks: tuple[Track, ...],
    selected: int,
    *,
    armed: bool,
    frozen_for: float | None,
    local: LocalTime,
    spelt: Spelt,
) -> Live:
    """What to show of `track`, which is the selected one or an older state of it."""
    spec, serve = figures.speculation(track), figures.traffic(track)
    if track.up is False:
        spec, serve = tuple(map(fade_row, spec)), tuple(map(fade_row, serve))
    return Live(
        identity=panels.title(track, armed=armed),
        engines=panels.strip(tracks, selected, spelt),
        control=panels.control(track),
        notice=panels.notice(track, frozen_for, local, spelt),
        tokens=series.tokens(track),
        acceptance=series.acceptance(track),
        positions=figures.positions(track),
        speculation=spec,
        traffic=serve,
        gpu=figures.gpus(track.reading),
        events=feed.events(track, local),
        compact=feed.compact(track, local, spelt),
    )
