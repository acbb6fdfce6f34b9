"""The past of an engine as a list of readings and events, in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdeck.console.widgets.cells import Tone
from specdeck.engine.blackbox.event import EventKind
from specdeck.engine.blackbox.summary import Extent, OverviewColumn
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import Origin


@dataclass(frozen=True, slots=True)
class ListedEvent:
    t: float
    text: str
    kind: EventKind = "change"
    tone: Tone = "plain"
    label: str | None = None
    origin: Origin | None = None
    who: str | None = None
    reason: str | None = None


class ListedHistory:
    """Answers from its lists; raises `error` where there is one."""

    def __init__(
        self, readings: Sequence[Reading], events: Sequence[ListedEvent] = (), name: str = "demo"
    ) -> None:
        self.listed, self.told, self.name = list(readings), list(events), name
        self.error: SpecdeckError | None = None
        self.asked: list[tuple[float, float, int]] = []
        """Stretches of time that were asked for."""
        self.kept: list[tuple[str, float, Mapping[str, Any]]] = []
        """Documents: kind, Unix time and what they say, oldest first."""

    @property
    def url(self) -> str:
        return self.listed[0].url

    @property
    def first(self) -> float:
        return self.listed[0].t

    @property
    def last(self) -> float:
        return self.listed[-1].t

    def readings(self, start: float, end: float) -> Iterator[Reading]:
        return (one for one in self.listed if start <= one.t <= end)

    def reading_at(self, t: float) -> Reading | None:
        if self.error is not None:
            raise self.error
        at = bisect_right([one.t for one in self.listed], t)
        return self.listed[at - 1] if at else None

    def window(self, start: float, end: float) -> Window | None:
        windows = [
            one.window for one in self.listed if start < one.t <= end and one.window is not None
        ]
        return windows[-1] if windows else None

    def overview(self, start: float, end: float, columns: int) -> Sequence[OverviewColumn]:
        if self.error is not None:
            raise self.error
        self.asked.append((start, end, columns))
        width = (end - start) / columns
        times = [one.t for one in self.listed]
        found = []
        for column in range(columns):
            first = bisect_left(times, start + column * width)
            last = bisect_left(times, start + (column + 1) * width)
            windows = [one.window for one in self.listed[first:last] if one.window is not None]
            found.append(
                OverviewColumn(
                    start + column * width,
                    start + (column + 1) * width,
                    _range([one.tokens_per_second for one in windows]),
                    _range([one.acceptance_rate for one in windows]),
                    last - first,
                    *_first_tokens(windows),
                )
            )
        return found

    def events(self, start: float, end: float, limit: int) -> Sequence[ListedEvent]:
        return [one for one in self.told if start <= one.t <= end][-limit:]

    def documents(
        self, kind: str, start: float, end: float, limit: int = 1
    ) -> Sequence[tuple[float, Mapping[str, Any]]]:
        found = [(t, told) for one, t, told in self.kept if one == kind and start <= t <= end]
        return found[-limit:]

    def next_event(self, t: float) -> ListedEvent | None:
        return next((one for one in self.told if one.t > t), None)

    def previous_event(self, t: float) -> ListedEvent | None:
        return next((one for one in reversed(self.told) if one.t < t), None)


def _first_tokens(windows: Sequence[Window]) -> tuple[float | None, float | None]:
    """What was accepted of the first tokens of drafts, and how long drafts were."""
    known = [one for one in windows if one.drafts and one.drafted and one.accepted_per_position]
    drafts = sum(one.drafts or 0.0 for one in known)
    if not drafts:
        return None, None
    first = sum((one.accepted_per_position or (0.0,))[0] for one in known)
    return first / drafts, sum(one.drafted or 0.0 for one in known) / drafts


def _range(values: Sequence[float | None]) -> Extent | None:
    known = [value for value in values if value is not None]
    return Extent(min(known), max(known), sum(known) / len(known)) if known else None
