"""Falls of an engine's figures as events: what nobody has told of is found in the record itself.

A fall is looked for once, an hour of the record at a time, and kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from specdeck.console.state.past import LATE_S, History, SeenEvent
from specdeck.console.widgets.cells import Tone
from specdeck.engine.blackbox.falls import SETTLED_S, Fall, list_falls, name_figure

HOUR_S: Final = 3600.0
MOST_HOURS: Final = 7 * 24 + 1
"""Looked through of a stretch of time, the latest: an incident has a week at most, and readings of
a foreign file, or of a clock that was set, may lie any time apart."""


@dataclass(frozen=True, slots=True)
class _Hour:
    """What is known of an hour."""

    until: float
    """Unix time up to which it was looked through."""
    found: tuple[SeenEvent, ...] = ()


@dataclass(slots=True)
class Falls:
    """The falls of one record, as far as it was looked through; from several threads."""

    history: History
    live: bool
    """Whether it may still grow: then a fall is told of once it has settled."""
    _hours: dict[int, _Hour] = field(default_factory=dict)

    def list_hours(self, start: float, end: float, now: float) -> list[int]:
        """The hours of a stretch of time that are still to be looked through, the latest first,
        `MOST_HOURS` of them."""
        first, last = self.history.first, min(end, self.history.last)
        if not first <= last:  # of an empty record both are NaN
            return []
        begin, until = math.floor(max(start, first) / HOUR_S), self._settles_at(now)
        latest = math.floor(last / HOUR_S)
        hours = range(latest, max(begin, latest - MOST_HOURS + 1) - 1, -1)
        return [hour for hour in hours if self._known(hour).until < self._end(hour, until)]

    def look_through(self, hour: int, now: float) -> bool:
        """Looks for falls in an hour; whether there are more than before. Raises SpecdeckError."""
        known, end = self._known(hour), self._end(hour, self._settles_at(now))
        if known.until >= end:
            return False
        found = tuple(map(as_seen, list_falls(self.history, known.until, end)))
        self._hours[hour] = _Hour(end, (*known.found, *found))
        return bool(found)

    def between(self, start: float, end: float) -> tuple[SeenEvent, ...]:
        """Those that are known from `start` to `end`, Unix seconds, the oldest first."""
        found = [one for hour in tuple(self._hours.values()) for one in hour.found]
        return tuple(sorted((one for one in found if start <= one.t <= end), key=lambda one: one.t))

    def _known(self, hour: int) -> _Hour:
        return self._hours.get(hour) or _Hour(hour * HOUR_S)

    def _end(self, hour: int, settled: float) -> float:
        return min((hour + 1) * HOUR_S, settled)

    def _settles_at(self, now: float) -> float:
        return now - SETTLED_S - LATE_S if self.live else math.inf


def as_seen(fall: Fall) -> SeenEvent:
    """A fall as an event. Load alone moves speed: that is none to be alarmed by.

    >>> as_seen(Fall("acceptance", 60.0, 0.458, 0.035))
    SeenEvent(t=60.0, kind='other', text='acceptance fell from 46 % to 4 %', tone='bad', \
label=None, origin=None, who=None, reason=None)
    """
    tone: Tone = "bad" if fall.figure == "acceptance" else "warn"
    return SeenEvent(fall.t, "other", describe_fall(fall), tone)


def describe_fall(fall: Fall) -> str:
    """A fall in words.

    >>> describe_fall(Fall("acceptance", 0.0, 0.458, 0.035))
    'acceptance fell from 46 % to 4 %'
    >>> describe_fall(Fall("tokens_per_second", 0.0, 414.2, 156.1))
    'tokens/s fell from 414 to 156'
    """
    figure = name_figure(fall.figure, is_of_first=fall.is_of_first)
    if fall.figure == "acceptance":
        return f"{figure} fell from {fall.before * 100:.0f} % to {fall.after * 100:.0f} %"
    return f"{figure} fell from {fall.before:.0f} to {fall.after:.0f}"
