"""Time in words and in columns: pure, no Textual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from specdeck.console.state.past import QUIET, PastEvent, TimeView, place
from specdeck.console.widgets.blocks import Series
from specdeck.console.widgets.cells import Cell, Cells, Row, Tone
from specdeck.console.widgets.format import (
    DASH,
    KeyLabel,
    LocalTime,
    at,
    number,
    on_day,
    percent,
)
from specdeck.engine.metrics.window import Window
from specdeck.engine.text import format_duration, oneline

if TYPE_CHECKING:
    from specdeck.console.state.stretch import Stretch
    from specdeck.console.state.timeline import When

_WORDS: Final = {"frozen": "FROZEN", "past": "PAST", "replay": "REPLAY"}

GLYPHS: Final = {
    "change": "◆", "policy": "·", "breaker": "■", "trial": "◇", "sweep": "◇", "lease": "◇",
    "restart": "▲", "down": "▼", "up": "▲", "control": "○", "drift": "≠", "alert": "●",
    "check": "□", "load": "·",
}  # fmt: skip
"""How kinds of events are told apart without colours."""
_OTHER: Final = "•"
_GRAVITY: Final[dict[Tone, int]] = {"bad": 4, "warn": 3, "accent": 2, "good": 2, "plain": 1}
"""Of several events in one column, the gravest is drawn."""

KINDS: Final = {
    "change": "a change", "policy": "the policy", "breaker": "the breaker", "trial": "a trial",
    "sweep": "a sweep", "lease": "a lease", "restart": "a restart", "down": "the engine went",
    "up": "the engine came back", "control": "control", "drift": "drift", "alert": "an alert",
    "check": "a check", "load": "load",
}  # fmt: skip


def badge(when: When, local: LocalTime) -> Cells:
    """Which moment is shown, for the title of every screen; nothing for now.

    >>> import time
    >>> from specdeck.console.state.timeline import When
    >>> badge(When("past", 1_795_262_400.0, 2040.0), time.gmtime)[0].text
    ' PAST 2026-11-21 12:00:00 · 34 min ago '
    >>> badge(When("now"), time.gmtime)
    ()
    """
    if when.is_now:
        return ()
    from specdeck.console.state.moment import format_ago, format_moment  # after the first paint

    word = _WORDS[when.kind]
    if when.t is None:
        return (Cell(f" {word} ", "past"),)
    ago = f" · {format_ago(when.ago)}" if when.ago is not None else ""
    return (Cell(f" {word} {format_moment(when.t, local)}{ago} ", "past"),)


def mark_title(row: Row, when: When, local: LocalTime) -> Row:
    """A title with the moment at its right, before anything else gets room there."""
    said = badge(when, local)
    if not said:
        return row
    return replace(row, right=(*said, Cell(" "), *row.right), shorter=(said,), kept=None)


def explain_check(key_label: KeyLabel) -> Row:
    """Why a check has nothing to show of the past."""
    text = f" a check asks the engine of now, and is not recorded: {key_label('time.now')} is now"
    return Row((Cell(text, "warn"),))


def explain_why(key_label: KeyLabel, *, stale: bool) -> Row:
    """What is to be done for causes of this moment, or that they are on their way."""
    if not stale:
        return Row((Cell(" reading what was recorded around this moment", "muted"),))
    return Row((Cell(f" {key_label('why.again')} ranks the causes of this moment", "accent"),))


def tint(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Figures of another moment, in a tone of their own."""
    return tuple(
        replace(
            row,
            left=_tint(row.left),
            right=_tint(row.right),
            shorter=tuple(map(_tint, row.shorter)),
        )
        for row in rows
    )


def _tint(cells: Cells) -> Cells:
    return tuple(
        replace(cell, tone="accent") if cell.tone in ("strong", "good") else cell for cell in cells
    )


def hint(view: TimeView, when: When, said: str | None, key_label: KeyLabel) -> tuple[Row, ...]:
    """What the keys of time do from here, or why the last one did nothing; no row now."""
    if said is not None:
        return (Row((Cell(f" {said}", "warn"),)),)
    if when.is_now:
        return ()
    freeze, end = key_label("view.freeze"), key_label("time.now")
    if when.kind == "frozen":
        held = Cell(f" frozen {format_duration(when.ago)}", "accent")
        text = f"  collection continues; {freeze} resumes the view"
        return (Row((held, Cell(text, "muted"))),)
    back, on = key_label("time.back"), key_label("time.forward")
    before, after = key_label("time.event.back"), key_label("time.event.forward")
    less, more, go = key_label("time.shorter"), key_label("time.longer"), key_label("time.go")
    last = "to its end" if when.kind == "replay" else "now"
    parts = (
        (f"{back} {on}", f"step {format_duration(max(1.0, view.step))}"),
        (f"{before} {after}", "event"),
        (f"{less} {more}", f"span {format_duration(view.seconds)}"),
        (go, "go to"),
        (freeze, "stop" if view.playing else "play"),
        (end, last),
    )
    return (Row(tuple(cell for keys, text in parts for cell in _key(keys, text))),)


def _key(keys: str, text: str) -> Cells:
    return (Cell(f" {keys} ", "key"), Cell(f"{text} ", "muted"))


def series(stretch: Stretch, name: str, latest: Cell, local: LocalTime) -> Series:
    """What one of the charts shows of a stretch of time."""
    found = stretch.tokens if name == "tokens" else stretch.acceptance
    width = stretch.seconds / len(found)
    marks = {stretch.column(one.t): one.label for one in stretch.events if one.label is not None}
    cursor = None if stretch.cursor is None else stretch.column(stretch.cursor)
    moment = ""
    if stretch.cursor is not None:
        moment = at(stretch.cursor, local)
        moment = moment if stretch.seconds <= 900 else moment[:5]
    return Series(
        tuple(None if one is None else one.high for one in found),
        len(found),
        latest,
        tuple((column, label) for column, label in sorted_marks(marks)),
        tuple(stretch.start + n * width for n in range(len(found))),
        tuple(None if one is None else one.low for one in found),
        cursor,
        moment,
    )


def sorted_marks(marks: dict[int | None, str]) -> list[tuple[int, str]]:
    """Those that are on the charts, from left to right."""
    return sorted((column, label) for column, label in marks.items() if column is not None)


def _gravity(event: PastEvent) -> int:
    return _GRAVITY.get(event.tone, 0)


def draw_lane(
    events: Sequence[PastEvent],
    start: float,
    seconds: float,
    cursor: float | None,
    width: int,
) -> Cells:
    """The events of a stretch of time on so many columns, each by its kind and its tone.

    >>> from tests.support.listed_history import ListedEvent
    >>> told = (ListedEvent(10.0, "k"), ListedEvent(30.0, "restarted", "restart", "warn"))
    >>> [(cell.text, cell.tone) for cell in draw_lane(told, 0.0, 40.0, 20.0, 8)]
    [('──', 'rule'), ('◆', 'plain'), ('─', 'rule'), ('┃', 'past'), ('─', 'rule'), ('▲', 'warn'), \
('─', 'rule')]
    """
    if width <= 0:
        return ()
    columns: dict[int, PastEvent] = {}
    for event in events:
        column = place(event.t, start, seconds, width)
        if column is None or not event.text:
            continue
        other = columns.get(column)
        if other is None or _gravity(event) >= _gravity(other):
            columns[column] = event
    here = None if cursor is None else place(cursor, start, seconds, width)
    cells: list[Cell] = []
    for column in range(width):
        found = columns.get(column)
        if found is not None:
            cells.append(Cell(GLYPHS.get(found.kind, _OTHER), found.tone))
        elif column == here:
            cells.append(Cell("┃", "past"))
        elif cells and cells[-1].tone == "rule":
            cells[-1] = replace(cells[-1], text=f"{cells[-1].text}─")
        else:
            cells.append(Cell("─", "rule"))
    if here is not None and here in columns:
        # The event that is looked at stands out as the cursor would.
        seen = 0
        for number, cell in enumerate(cells):
            if seen == here:
                cells[number] = replace(cell, tone="past")
                break
            seen += len(cell.text)
    return tuple(cells)


def lane(
    events: Sequence[PastEvent],
    start: float,
    seconds: float,
    t: float | None,
    width: int,
    local: LocalTime,
    key_label: KeyLabel,
    *,
    is_past: bool = False,
) -> Row:
    """The events under the charts, between the two ends of the time that these show.

    Unless it is the past, the latest of those before stands left of it.
    """
    first: Cells = (Cell(f" {at(start, local) if start else ''} ", "muted"),)
    if t is None:
        last: Cells = (
            Cell(" now", "muted"), Cell(f"  {key_label('time.go')} ", "key"),
            Cell("looks back ", "muted"),
        )  # fmt: skip
    else:
        last = (Cell(f" {at(start + seconds, local)} ", "muted"),)
    if width >= _ROOM_BEFORE and not is_past:
        first = (*_before(events, start, local), *first)
    used = sum(len(cell.text) for cell in (*first, *last))
    drawn = draw_lane(events, start, seconds, t, max(0, width - used))
    return Row((*first, *drawn, *last))


_ROOM_BEFORE: Final = 72
"""Cells of a lane that names the latest event before it."""


def _before(events: Sequence[PastEvent], start: float, local: LocalTime) -> Cells:
    """The latest event that is worth a look before the time that the lane shows."""
    earlier = [one for one in events if one.text and one.t < start and one.kind not in QUIET]
    if not earlier:
        return ()
    latest = max(earlier, key=lambda one: one.t)
    glyph = GLYPHS.get(latest.kind, _OTHER)
    moment = on_day(latest.t, local, start)
    return (Cell(f" {glyph}", latest.tone), Cell(f" {moment} ◂", "muted"))


def describe_event(
    event: PastEvent, around: tuple[Window | None, Window | None], now: float, local: LocalTime
) -> tuple[Row, ...]:
    """An event looked at closely: when, what, who and why, and the figures before and after."""
    from specdeck.console.state.moment import format_ago, format_moment

    moment = f"{format_moment(event.t, local)}, {format_ago(now - event.t)}"
    facts = [("when", moment)]
    if event.kind in KINDS:
        facts.append(("what", KINDS[event.kind]))
    if event.who or event.origin:
        facts.append(("who", " · ".join(filter(None, (event.who, event.origin)))))
    if event.reason:
        facts.append(("why", event.reason))
    rows = [Row((Cell(f"{label:<12}", "muted"), Cell(oneline(text)))) for label, text in facts]
    before, after = around
    rows.append(Row((Cell(f"{'':<12}{'30 s before':>14}{'30 s after':>14}", "muted"),)))
    for label, read in _FIGURES:
        figures = "".join(f"{DASH if one is None else read(one):>14}" for one in (before, after))
        rows.append(Row((Cell(f"{label:<12}", "muted"), Cell(figures, "strong"))))
    return tuple(rows)


_FIGURES: Final[tuple[tuple[str, Callable[[Window], str]], ...]] = (
    ("tokens/s", lambda window: number(window.tokens_per_second)),
    ("acceptance", lambda window: percent(window.acceptance_rate, 1)),
    ("length", lambda window: two_digits(window.mean_acceptance_length)),
    ("observed k", lambda window: two_digits(window.draft_tokens_per_draft)),
)


def two_digits(value: float | None) -> str:
    """A figure of a few tokens.

    >>> two_digits(2.3456), two_digits(None)
    ('2.35', '–')
    """
    return DASH if value is None else f"{value:.2f}"
