"""What an engine was at an earlier moment: which moment is looked at, and what is known of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final, Protocol, get_args

from specdeck.console.state.engine_state import (
    EVENTS,
    MINUTE_S,
    POINTS,
    Cause,
    ChartPoint,
    Event,
    FingerprintNames,
    Track,
)
from specdeck.console.widgets.cells import Tone
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.codec import WrongType, read_record
from specdeck.engine.protocol.messages import EngineState, Origin

if TYPE_CHECKING:
    from specdeck.engine.blackbox.event import EventKind
    from specdeck.engine.blackbox.summary import OverviewColumn
    from specdeck.engine.protocol.tuning import Tuning

DAY_S: Final = 86_400.0
SPANS: Final = (60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0)
"""Seconds that the charts may show."""
PAST_SPAN: Final = 300.0
"""What they show in the past until somebody chooses: what led to a moment, and what came of it."""
STEPS: Final = 60
"""Steps of a key over the whole of a span: a second each over a minute."""
EDGE: Final = 0.1
"""Share of the span at both ends; a moment there has the charts show another stretch of time."""
SILENCE_S: Final = 15.0
"""Nothing recorded for so long is a moment of which nothing is known."""
LATE_S: Final = 5.0
"""A reading is recorded at most so long after its moment."""
QUIET: Final = frozenset({"policy", "load"})
"""Kinds of events that come by themselves all the time: a key to the next event passes them."""
_MOST_TURNS: Final = 200
"""Events since the tuning was recorded, among which the breaker's last turn is looked for."""
LOOK_BACK_S: Final = 60.0
"""How far the last figures of an engine that is down are looked for."""


class PastEvent(Protocol):
    """Something that happened, as a history keeps it."""

    @property
    def t(self) -> float:
        """Unix time, seconds."""

    @property
    def kind(self) -> EventKind:
        """What it is about."""

    @property
    def text(self) -> str:
        """In plain words; empty where it is a mark alone."""

    @property
    def tone(self) -> Tone:
        """What it means."""

    @property
    def label(self) -> str | None:
        """A short word for the time axis; None where it leaves no mark."""

    @property
    def origin(self) -> str | None:
        """Where a change came from."""

    @property
    def who(self) -> str | None:
        """Who made it."""

    @property
    def reason(self) -> str | None:
        """Why."""


class History(Protocol):
    """The past of one engine."""

    @property
    def first(self) -> float:
        """Unix time of the first reading."""

    @property
    def last(self) -> float:
        """The same of the last one."""

    def readings(self, start: float, end: float) -> Iterator[Reading]:
        """Those of a stretch of time, oldest first."""

    def reading_at(self, t: float) -> Reading | None:
        """The last one at or before `t`, with its window."""

    def window(self, start: float, end: float) -> Window | None:
        """The work between two moments; None across a restart."""

    def overview(self, start: float, end: float, columns: int) -> Sequence[OverviewColumn]:
        """Lowest and highest figures in each of so many parts of a stretch of time."""

    def events(self, start: float, end: float, limit: int) -> Sequence[PastEvent]:
        """What happened, oldest first; the newest of them where there are more than `limit`."""

    def next_event(self, t: float) -> PastEvent | None:
        """The first one after `t`."""

    def previous_event(self, t: float) -> PastEvent | None:
        """The last one before `t`."""

    def documents(
        self, kind: str, start: float, end: float, limit: int = 1
    ) -> Sequence[tuple[float, Mapping[str, Any]]]:
        """What was recorded of something that changes seldom, with its Unix times, oldest first;
        the newest of them where there are more than `limit`."""


@dataclass(frozen=True, slots=True)
class TimeView:
    """Which moment is looked at, and what stretch of time the charts show."""

    t: float | None = None
    """Unix time, seconds; None is now."""
    span: float | None = None
    """Seconds on the charts; None is a column for each reading now, and `PAST_SPAN` in the past."""
    start: float | None = None
    """The left end of the charts, Unix time; None now."""
    playing: bool = False
    """Whether the moment moves on by itself."""

    @property
    def seconds(self) -> float:
        """What the charts show in the past."""
        return PAST_SPAN if self.span is None else self.span

    @property
    def step(self) -> float:
        """What a key moves the moment by, in seconds."""
        return self.seconds / STEPS


@dataclass(frozen=True, slots=True)
class Bounds:
    """The stretch of time that there is something to look at of."""

    first: float
    last: float
    """Now, of an engine that runs."""
    live: bool = True
    """Whether the end is now; else it is the end of a recording."""


def move_to(view: TimeView, t: float, bounds: Bounds) -> TimeView:
    """Look at `t`, or at the nearest moment that there is; the end of a live engine is now.

    >>> bounds = Bounds(0.0, 1000.0)
    >>> move_to(TimeView(), 400.0, bounds)
    TimeView(t=400.0, span=None, start=250.0, playing=False)
    >>> move_to(TimeView(), 980.0, bounds).start, move_to(TimeView(), 2000.0, bounds)
    (700.0, TimeView(t=None, span=None, start=None, playing=False))
    """
    if bounds.live and t >= bounds.last:
        return now(view, bounds)
    t = min(max(t, bounds.first), bounds.last)
    return replace(view, t=t, start=_start(view, t, bounds))


def _start(view: TimeView, t: float, bounds: Bounds) -> float:
    """The charts' left end: as it is while `t` is well within, else with `t` in the middle."""
    seconds, start = view.seconds, view.start
    if start is not None:
        first, last = start + EDGE * seconds, start + (1 - EDGE) * seconds
        if (
            (first <= t or start <= bounds.first)
            and (t <= last or last >= bounds.last)
            and (start <= t <= start + seconds)
        ):
            return start
    return max(bounds.first, min(t - seconds / 2, bounds.last - seconds))


def now(view: TimeView, bounds: Bounds) -> TimeView:
    """Look at now, or at the end of a recording."""
    if bounds.live:
        return replace(view, t=None, start=None, playing=False)
    return replace(move_to(view, bounds.last, bounds), playing=False)


def step(view: TimeView, by: int, bounds: Bounds) -> TimeView:
    """So many steps on, or back; from now to the past where it is back."""
    at = bounds.last if view.t is None else view.t
    return replace(move_to(view, at + by * view.step, bounds), playing=False)


def widen(view: TimeView, by: int, bounds: Bounds) -> TimeView:
    """The next longer or shorter span, with the moment at its place on the charts.

    >>> bounds = Bounds(0.0, 100_000.0)
    >>> [widen(TimeView(), by, bounds).span for by in (1, -1)]
    [60.0, None]
    >>> widen(TimeView(50_000.0, 300.0, 49_700.0), 1, bounds)
    TimeView(t=50000.0, span=900.0, start=49100.0, playing=False)
    """
    known: tuple[float | None, ...] = SPANS if view.t is not None else (None, *SPANS)
    now_at = known.index(view.seconds if view.t is not None else view.span)
    span = known[max(0, min(len(known) - 1, now_at + by))]
    if view.t is None or view.start is None or span is None:
        return replace(view, span=span)
    share = (view.t - view.start) / view.seconds
    start = max(bounds.first, min(view.t - share * span, bounds.last - span))
    return replace(view, span=span, start=min(start, view.t))


def place(t: float, start: float, seconds: float, columns: int) -> int | None:
    """The column of a moment on so many of them; None outside."""
    share = (t - start) / seconds
    return min(columns - 1, int(share * columns)) if 0 <= share <= 1 and columns else None


def fold_past(history: History, live: Track, t: float, *, silence_s: float = SILENCE_S) -> Track:
    """What was known of an engine at `t`, as a screen shows it.

    What no history keeps is left out: requests, facts, this console's wishes. What is recorded
    now and then is what it was last: the tuning with its age, none of another life of the engine.
    Without a reading within `silence_s` nothing is known but what happened before.
    """
    reading = history.reading_at(t)
    if reading is not None and t - reading.t > silence_s:
        reading = None
    figures = reading if reading is not None and reading.up else None
    state = None if reading is None else reading.state
    if reading is not None and (figures is None or state is None):
        for earlier in history.readings(reading.t - LOOK_BACK_S, reading.t):
            figures = earlier if earlier.up and not reading.up else figures
            # A state of its former life says nothing about this one.
            state = None if earlier.restarted else earlier.state or state
    told = history.events(-math.inf, t, EVENTS)
    found = Track(
        live.name,
        live.url,
        live.recorded,
        reading=reading,
        figures=figures,
        known=state,
        last_minute=None if figures is None else read_last_minute(history, figures.t),
        events=tuple(as_event(one) for one in told if one.text),
        past=True,
    )
    return found if reading is None else _add_documents(history, found, t)


def read_points(history: History, end: float, apart: float, count: int) -> tuple[ChartPoint, ...]:
    """What charts with a column for each reading have of the time before `end`, from the first
    column on of which something is known."""
    columns = history.overview(end - count * apart, math.nextafter(end, 0.0), count)
    points = [
        ChartPoint(
            one.start,
            None if one.tokens is None else one.tokens.mean,
            None if one.acceptance is None else one.acceptance.mean,
        )
        for one in columns
    ]
    return tuple(dropwhile(lambda one: one.tokens is None and one.acceptance is None, points))


def prepend(track: Track, events: tuple[Event, ...], points: tuple[ChartPoint, ...]) -> Track:
    """A track with what is known of the time before its first reading."""
    kept = (*points, *track.points)[-POINTS:]
    shift = len(points)
    marks = tuple(replace(mark, at=mark.at + shift) for mark in track.marks)
    return replace(
        track,
        events=(*events, *track.events),
        points=kept,
        total=track.total + shift,
        marks=marks,
    )


def read_last_minute(history: History, end: float) -> Window | None:
    """The work of the minute before the reading at `end`, or of what of it that life of the engine
    was looked at; None of a single look."""
    readings = history.readings(end - MINUTE_S, end)
    first = next((one for one in readings if one.sample is not None), None)
    found = None if first is None else history.window(first.t, end)
    if found is None:
        # Of what came before a restart nothing is counted.
        lives = [one for one in readings if one.restarted]
        found = history.window(lives[-1].t, end) if lives else None
    return found


def _add_documents(history: History, track: Track, t: float) -> Track:
    """With what was last recorded of what changes seldom."""
    state = track.known
    names = _read_names(_last_document(history, "fingerprint", t), state)
    load = _last_document(history, "load", t)
    profile = None if load is None else load[1].get("profile")
    track = replace(track, names=names, load=profile if isinstance(profile, str) else None)
    told = _last_document(history, "tuning", t)
    if told is None or state is None:
        return track
    from specdeck.console.state.tuning import breaker_at
    from specdeck.engine.protocol.tuning import Tuning  # after the first paint

    try:
        tuning = Tuning.from_json(told[1])
    except WrongType:
        return track  # of a newer specdeck, or damaged
    if tuning.instance != state.instance:
        return track
    age = max(0.0, t - told[0])
    turns = [one.t for one in history.events(told[0], t, _MOST_TURNS) if one.kind == "breaker"]
    breaker = breaker_at(tuning.breaker, state.breaker, age, t - turns[-1] if turns else None)
    return replace(track, tuning=replace(_turn(tuning, state), breaker=breaker), tuning_age=age)


def _turn(tuning: Tuning, state: EngineState) -> Tuning:
    """The tuning as it was told of, with the knobs of a moment after that."""
    chosen = tuning.k
    if state.policy == "fixed" and chosen:
        chosen = ((chosen[0][0], chosen[-1][1], state.k),)
    elif tuning.policy != state.policy:
        chosen = ()
    reason = tuning.reason if tuning.policy == state.policy else None
    return replace(tuning, policy=state.policy, reason=reason, k=chosen)


def _last_document(history: History, kind: str, t: float) -> tuple[float, Mapping[str, Any]] | None:
    found = history.documents(kind, -math.inf, t, 1)
    return found[-1] if found else None


def _read_names(
    found: tuple[float, Mapping[str, Any]] | None, state: EngineState | None
) -> FingerprintNames | None:
    """The three names, as long as the engine's path is still the one that they were read of."""
    if found is None or state is None or state.fingerprint is None:
        return None
    try:
        names = read_record(FingerprintNames, found[1])
    except WrongType:
        return None
    return names if names.path == state.fingerprint else None


def as_event(found: PastEvent) -> Event:
    """An event as screens list it."""
    cause = None
    if found.origin is not None or found.who is not None:
        origin = next((one for one in get_args(Origin) if one == found.origin), None)
        cause = Cause(origin, found.who, found.reason, found.t)
    return Event(found.t, found.text, found.tone, cause, found.kind)


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event of this session as a history would have it."""

    t: float
    kind: EventKind
    text: str
    tone: Tone
    label: str | None = None
    origin: str | None = None
    who: str | None = None
    reason: str | None = None


def list_events(track: Track) -> tuple[SeenEvent, ...]:
    """What is known to have happened, oldest first."""
    return tuple(map(_as_seen, track.events))


def _as_seen(event: Event) -> SeenEvent:
    cause = event.cause
    if cause is None:
        return SeenEvent(event.t, event.kind, event.text, event.tone)
    return SeenEvent(
        event.t, event.kind, event.text, event.tone, None, cause.origin, cause.who, cause.reason
    )
