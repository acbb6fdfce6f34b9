"""Where a recording is opened: at the moment that it is looked at for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from specdeck.console.state.past import History, PastEvent

LAST_S: Final = 3600.0
"""Of a record of days, the hour that is looked at for an alarm."""
OWN_S: Final = 15.0
"""After a change, in which drift is of that change."""
_COLUMNS: Final = 60
_NARROW_S: Final = 60.0
"""Readings of so many seconds are gone through one by one."""


def find_opening(
    history: History, events: Sequence[PastEvent], last: float, *, is_incident: bool = False
) -> float:
    """The first alarm among `events`, a fall of acceptance among them; else the first fall of speed
    that nobody told of; else `last`, Unix seconds. Of an incident the first of them all.

    An engine that went is none: what it did before is what is looked for, and `last` is its end.
    Neither is drift that a change of the operator's made.
    """
    changes = [one.t for one in events if one.kind == "change"]
    alarms = [
        one.t
        for one in events
        if one.tone == "bad" and one.kind != "down" and one.text and not _is_own(one, changes)
    ]
    falls = [one.t for one in events if one.tone == "warn" and one.kind == "other" and one.text]
    if is_incident:
        alarms += falls
    return max(history.first, min(alarms or falls or [last]))


def _is_own(event: PastEvent, changes: Sequence[float]) -> bool:
    """Whether it is drift right after a change."""
    return event.kind == "drift" and any(0 <= event.t - t <= OWN_S for t in changes)


def find_last_figures(history: History) -> float:
    """The last second in which the engine told its counters; the record's end without any.

    NaN for an empty record.
    """
    start, end = history.first, math.nextafter(history.last, math.inf)
    while end - start > _NARROW_S:
        columns = history.overview(start, end, _COLUMNS)
        known = [one for one in columns if one.tokens is not None]
        if not known:
            break
        # Long columns are made of whole minutes, of which one may lie in the next column.
        width = (end - start) / _COLUMNS
        edge = 60.0 if width >= 60.0 else width
        narrower = max(start, known[-1].start - edge), min(end, known[-1].end + edge)
        if narrower == (start, end):
            break
        start, end = narrower
    figures = [one.t for one in history.readings(start, end) if one.window is not None]
    return figures[-1] if figures else history.last
