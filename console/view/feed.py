"""Events as rows, and the whole engine in a block for a very small terminal."""

from __future__ import annotations

from specdeck.console.view import figures, panels
from specdeck.console.view.cell import Cell, Row, joined
from specdeck.console.view.track import Track
from specdeck.console.view.words import LocalTime, at


def events(track: Track, local: LocalTime, most: int = 40) -> tuple[Row, ...]:
    """The newest first."""
    if not track.events:
        return (Row((Cell(" nothing has happened yet", "muted"),)),)
    newest = track.events[: -most - 1 : -1]
    return tuple(
        Row((Cell(f" {at(event.t, local)}  ", "muted"), Cell(event.text, event.tone)))
        for event in newest
    )


def compact(track: Track, local: LocalTime) -> tuple[Row, ...]:
    """The figures that matter most, in eight short lines."""
    spec, serve = figures.speculation(track), figures.traffic(track)
    charted = (
        Row((Cell(" tokens/s", "muted"),), (figures.tokens(track), Cell(" "))),
        Row((Cell(" acceptance", "muted"),), (figures.acceptance(track), Cell(" "))),
    )
    body = (*charted, *(_indented(row) for row in (spec[0], serve[0], serve[2], serve[3])))
    trouble = panels.notice(track, None, local)
    return (
        (panels.control(track), trouble, *body)
        if trouble.left
        else (
            Row(panels.control(track).left),
            Row((Cell(" mode ", "muted"), *joined(panels.control(track).right[:1]))),
            *body,
        )
    )


def _indented(row: Row) -> Row:
    return Row((Cell(" "), *row.left), (*row.right, Cell(" ")))
