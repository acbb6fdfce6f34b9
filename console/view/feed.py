"""Events as rows, and the whole engine in a block for a very small terminal."""

from __future__ import annotations

from specdeck.console.state.engine_state import Track
from specdeck.console.view import figures, panels
from specdeck.console.widgets.cells import Cell, Row, fact, fade_row
from specdeck.console.widgets.format import LocalTime, Spelt, at


def events(track: Track, local: LocalTime, most: int = 40) -> tuple[Row, ...]:
    """The newest first."""
    if not track.events:
        return (Row((Cell(" nothing has happened yet", "muted"),)),)
    newest = track.events[: -most - 1 : -1]
    return tuple(
        Row((Cell(f" {at(event.t, local)}  ", "muted"), Cell(event.text, event.tone)))
        for event in newest
    )


def compact(track: Track, local: LocalTime, spelt: Spelt) -> tuple[Row, ...]:
    """The figures that matter most, in eight short lines."""
    serve, length = figures.traffic(track), figures.speculation(track)[0]
    charted = (
        fact("tokens/s", figures.tokens(track)),
        fact("acceptance", figures.acceptance(track)),
        length,
    )
    body = (*charted, serve[0], serve[2], serve[3])
    trouble = panels.notice(track, None, local, spelt)
    if track.up is False:
        return (*trouble, *(_indented(fade_row(row)) for row in body))
    return (panels.brief_control(track), *trouble[:1], *map(_indented, body))


def _indented(row: Row) -> Row:
    return Row((Cell(" "), *row.left), (*row.right, Cell(" ")))
