"""A recording of JSON lines read as a history: sought and looked over as a black box is.

Of each line a few figures and its place in the file are kept, so that a day of one engine takes a
few megabytes; the line itself is read again when somebody looks at its moment.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from specdeck.engine.blackbox.event import BoxEvent, EventTone
from specdeck.engine.blackbox.history import MOST_COLUMNS, MOST_EVENTS
from specdeck.engine.blackbox.patience import IsOver, Patience, never
from specdeck.engine.blackbox.summary import Figures, OverviewColumn, Summary
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import (
    Line,
    LineReader,
    OnPlace,
    Recording,
    read_line,
    read_places,
)
from specdeck.engine.metrics.window import Window
from specdeck.engine.text import format_change, format_duration

MOST_LINES: Final = 2_000_000
"""Of one engine: three weeks at a line a second."""
_KEPT_EVENTS: Final = 10_000
_KNOBS: Final = 100_000
"""More than any k: two numbers are kept as one."""


class JsonHistory:
    """One engine of a recording. Asking raises ConfigError where the file has changed meanwhile."""

    def __init__(self, recording: Recording, url: str, *, is_read: bool = True) -> None:
        """Reads the whole file once; raises ConfigError for one that is too long."""
        self.url = url
        """The engine's, without credentials."""
        self._path = recording.path
        self._times = array("d")
        self._places = array("q")
        self._knobs = array("q")
        """What a line leaves out: how often the engine had restarted, and the operator's k."""
        self._tokens = array("d")
        self._accepted = array("d")
        self._events: list[BoxEvent] = []
        self._reader = LineReader()
        self._teller = _Teller()
        self._patience: Patience | None = None
        if is_read:
            for place, line in read_places(self._path):
                if line["engine"] == url:
                    self.add(place, line)

    def add(self, place: int, line: Line) -> None:
        """Takes in the line that begins at a byte."""
        if self._times and line["t"] < self._times[-1]:
            return  # two recordings in one file, or a clock that was set: it never goes back
        if len(self._times) >= MOST_LINES:
            raise ConfigError(
                f"more than {MOST_LINES} lines of {self.url}", place=Place(self._path),
                remedy="cut it, as with `split`",
            )  # fmt: skip
        reader = self._reader
        self._knobs.append(reader.restarts * _KNOBS + reader.k)
        reader.reading(line)
        self._times.append(line["t"])
        self._places.append(place)
        self._tokens.append(_number(line["tokens_per_second"]))
        self._accepted.append(_number(line.get("acceptance_rate")))
        self._events += self._teller.list_events(line, reader.k)
        del self._events[:-_KEPT_EVENTS]

    def limit_waiting(self, patience: Patience) -> None:
        """Has what the main thread waits longer for be left out."""
        self._patience = patience

    def _wait(self) -> AbstractContextManager[IsOver]:
        return nullcontext(never) if self._patience is None else self._patience.wait()

    @property
    def first(self) -> float:
        """Unix time of the first reading."""
        return self._times[0]

    @property
    def last(self) -> float:
        """Unix time of the last reading."""
        return self._times[-1]

    def readings(self, start: float, end: float) -> Iterator[Reading]:
        """The readings from `start` to `end`, both included."""
        with self._wait() as is_over:
            for index in range(bisect_left(self._times, start), bisect_right(self._times, end)):
                if is_over():
                    return
                yield self._reading(index)

    def reading_at(self, t: float) -> Reading | None:
        """The last reading at or before `t`; None before the first one."""
        index = bisect_right(self._times, t) - 1
        return None if index < 0 else self._reading(index)

    def _reading(self, index: int) -> Reading:
        line = read_line(self._path, self._places[index])
        if line is None or line["engine"] != self.url or line["t"] != self._times[index]:
            raise ConfigError("the recording has changed meanwhile", place=Place(self._path))
        restarts, k = divmod(self._knobs[index], _KNOBS)
        return LineReader(k, restarts).reading(line)

    def window(self, start: float, end: float) -> Window | None:
        """The work of the readings after `start` up to `end`; None without any, and across a
        restart."""
        found = list(self.readings(math.nextafter(start, math.inf), end))
        if any(one.restarted for one in found):
            return None
        return _add([one.window for one in found if one.window is not None])

    def overview(self, start: float, end: float, columns: int) -> tuple[OverviewColumn, ...]:
        """What a chart shows in so many columns of the same width.

        Raises ValueError for no time, or no columns.
        """
        if not (end > start and 1 <= columns <= MOST_COLUMNS):
            raise ValueError("an overview of no time, or in no columns")
        width = (end - start) / columns
        sums = [Summary() for _ in range(columns)]
        with self._wait() as is_over:
            for index in range(bisect_left(self._times, start), bisect_right(self._times, end)):
                if is_over():
                    break
                tokens, accepted = self._tokens[index], self._accepted[index]
                drafted = None if math.isnan(accepted) else 1.0
                t = self._times[index]
                figures = Figures(t, 1.0, _known(tokens), drafted, _known(accepted))
                sums[min(int((t - start) / width), columns - 1)].add(figures)
        return tuple(
            one.column(start + width * i, start + width * (i + 1)) for i, one in enumerate(sums)
        )

    def events(self, start: float, end: float, limit: int = MOST_EVENTS) -> tuple[BoxEvent, ...]:
        """The events from `start` to `end`, the oldest first; of more than `limit` the newest."""
        found = [one for one in self._events if start <= one.t <= end]
        return tuple(found[len(found) - min(limit, len(found)) :])

    def documents(
        self, kind: str, start: float, end: float, limit: int = 1
    ) -> tuple[tuple[float, dict[str, Any]], ...]:
        """None: lines have neither tuning nor fingerprints."""
        return ()

    def next_event(self, t: float) -> BoxEvent | None:
        """The first event after `t`; None where there is none."""
        return next((one for one in self._events if one.t > t), None)

    def previous_event(self, t: float) -> BoxEvent | None:
        """The last event before `t`, as `next_event`."""
        return next((one for one in reversed(self._events) if one.t < t), None)


def read_histories(
    recording: Recording, on_place: OnPlace = lambda place: None
) -> dict[str, JsonHistory]:
    """Every engine of a recording, in one pass; raises ConfigError for a file that is too long."""
    found = {url: JsonHistory(recording, url, is_read=False) for url in recording.engines}
    for place, line in read_places(recording.path):
        on_place(place)
        if (one := found.get(line["engine"])) is not None:
            one.add(place, line)
    return found


class _Teller:
    """Says what has happened from one line to the next."""

    def __init__(self) -> None:
        self._before: Line | None = None
        """The last line."""
        self._known: dict[str, Any] | None = None
        """The knobs when they were last known."""
        self._since = math.nan
        """When the engine came up or went away."""

    def list_events(self, line: Line, k: int) -> list[BoxEvent]:
        """What `line` tells of; `k` is the operator's."""
        before, t = self._before, line["t"]
        self._before = line
        if before is None:
            self._since = t
            self._known = _knobs(line, k)
            return []
        found = []
        if line["restarted"]:
            self._known = None
            text = "the engine was restarted"
            found.append(BoxEvent(t, "restart", text, "warn", "restart"))
        if line["up"] != before["up"]:
            if line["up"]:
                gone = format_duration(t - self._since)
                found.append(BoxEvent(t, "up", f"answers again after {gone}", "good", "up"))
            else:
                found.append(BoxEvent(t, "down", "no answer", "bad", "down"))
            self._since = t
        knobs = _knobs(line, k)
        if knobs is not None:
            if self._known is not None and knobs != self._known:
                found += _describe_moved(t, self._known, knobs)
            self._known = knobs
        return found


def _knobs(line: Line, k: int) -> dict[str, Any] | None:
    """What can be set of an engine; None where its plugin did not answer."""
    if line["mode"] is None or line.get("k") is None:
        return None
    return {
        "k": k, "mode": line["mode"], "policy": line.get("policy"),
        "breaker": line.get("breaker"), "path": line.get("fingerprint"),
    }  # fmt: skip


def _describe_moved(t: float, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[BoxEvent]:
    found = []
    moved = [name for name in ("k", "mode", "policy") if old[name] != new[name]]
    if moved:
        text = ", ".join(f"{name} {format_change(old[name], new[name])}" for name in moved)
        label = f"k{new['k']}" if moved == ["k"] else str(new[moved[-1]])
        found.append(BoxEvent(t, "change", text, "accent", label).shorten())
    if old["breaker"] != new["breaker"]:
        tone = _BREAKER_TONES.get(new["breaker"], "warn")
        text = f"breaker {new['breaker']}, was {old['breaker']}"
        found.append(BoxEvent(t, "breaker", text, tone, f"breaker {new['breaker']}").shorten())
    if None not in (old["path"], new["path"]) and old["path"] != new["path"]:
        text = f"the path is {new['path']}, was {old['path']}"
        found.append(BoxEvent(t, "drift", text, "warn", "path").shorten())
    return found


_BREAKER_TONES: Final[Mapping[str, EventTone]] = {"open": "bad", "closed": "good"}


def _add(windows: list[Window]) -> Window | None:
    """The work of all of them, as far as it is known: a line says nothing of drafts while none
    are made."""
    if not windows:
        return None
    return Window(
        seconds=sum(one.seconds for one in windows),
        generated=_total([one.generated for one in windows]),
        drafts=_total([one.drafts for one in windows]),
        drafted=_total([one.drafted for one in windows]),
        accepted=_total([one.accepted for one in windows if one.drafts is not None]),
        preemptions=_total([one.preemptions for one in windows]),
    )


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
