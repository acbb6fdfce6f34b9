"""The moment that all screens show: now, a picture held still, or any moment that is recorded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from specdeck.console.state import past
from specdeck.console.state.engine_state import EVENTS, ChartPoint, Event, Track
from specdeck.console.state.past import Bounds, History, PastEvent, TimeView
from specdeck.console.widgets.format import LocalTime
from specdeck.engine.client.attach import MonitoredEngine
from specdeck.engine.errors import SpecdeckError, Unsupported

# What only the past needs is imported after the first paint.
if TYPE_CHECKING:
    from specdeck.console.state.controller import Controller, Task
    from specdeck.console.state.falls import Falls
    from specdeck.console.state.stretch import Stretch
    from specdeck.engine.blackbox.history import History as BoxHistory
    from specdeck.engine.fingerprint.fingerprint import Fingerprint
    from specdeck.engine.metrics.window import Window

_Earlier = tuple[tuple[Event, ...], tuple[ChartPoint, ...]]
Histories = Callable[[int], History | None]
"""The past of an engine by its number; None where nothing is recorded of it."""

MOST_EARLIER: Final = 200
"""Events of the day before a console was opened that it lists."""
EARLIER_POINTS: Final = 240
"""Columns of the charts that are recorded from before a console was opened: more are on none."""
TICK_S: Final = 1.0
"""Between two moments that play."""
_MOST_PASSED: Final = 1000
AROUND_S: Final = 30.0
JUDGED_S: Final = 120.0
"""What causes are judged by at least: cohorts are recorded once a minute."""
HOURS_AT_ONCE: Final = 3
"""That are looked through for falls while a screen waits; others follow in the background."""
LOOK_S: Final = 10.0
"""Between two looks for a fall of an engine that runs."""
NOTHING_RECORDED: Final = "nothing is recorded of this engine: set `record: true` in the settings"


@runtime_checkable
class RecordedEngine(MonitoredEngine, Protocol):
    """A recording in the place of an engine."""

    speed: float
    """How fast it is played, as a multiple of its own pace."""
    plays: bool
    """Whether it gives readings by itself, from its beginning; else one moment is looked at."""
    is_incident: bool
    """Whether it was cut out of a longer record for what happened in it."""
    fingerprint: Fingerprint | None
    """The names and facts that it has beside its record."""

    def find_history(self) -> History:
        """All that it holds; raises SpecdeckError where that cannot be read."""


WhenKind = Literal["now", "frozen", "past", "replay"]


@dataclass(frozen=True, slots=True)
class When:
    """Which moment is shown, for the title of every screen."""

    kind: WhenKind
    t: float | None = None
    """Unix time; None for now, and for a recording of which nothing was read yet."""
    ago: float | None = None
    """Seconds."""
    playing: bool = False

    @property
    def is_now(self) -> bool:
        """Whether the engine can be acted on as it is shown."""
        return self.kind == "now"


def _add_events(track: Track, events: Iterable[Event]) -> Track:
    """With events that nobody has told of, in the order of their times.

    What was told of comes last at the same moment: it is the event that is looked at.
    """
    both = sorted((*events, *track.events), key=lambda one: one.t)
    return replace(track, events=tuple(both)[-EVENTS:])


class Timeline:
    """Moves all screens of a console through time; engines go on being followed meanwhile."""

    def __init__(
        self,
        controller: Controller,
        histories: Histories = lambda index: None,
        *,
        silence_s: float = past.SILENCE_S,
    ) -> None:
        self.controller = controller
        self.view = TimeView()
        self.said: str | None = None
        """Why the last key did nothing."""
        self._histories = histories
        self._silence_s = silence_s
        self._held: tuple[Track, ...] | None = None
        """What was known of the engines when the picture was held still."""
        self._opened = controller.clock()
        self._falls: dict[int, Falls] = {}
        """Of each engine by its number."""
        self._looking: set[int] = set()
        """Engines whose record is looked through for falls."""
        self._look_at: dict[int, float] = {}
        """When it is next, Unix time."""
        self._earlier: dict[int, _Earlier] = {}
        """What is recorded of each engine before."""
        self._joined: tuple[tuple[Track, int], Track] | None = None
        self._player: Task | None = None
        self._folded: tuple[tuple[int, TimeView], Track] | None = None
        self._stretch: tuple[tuple[int, float, float, int], Stretch] | None = None
        self._stretch_until = float("-inf")
        engine = controller.engine
        if isinstance(engine, RecordedEngine) and not engine.plays:
            self.view = self._open_recording(engine)

    def _open_recording(self, engine: RecordedEngine) -> TimeView:
        """At the first alarm or fall of an incident, or at that of the last hour with figures of a
        longer record; without one at its last figures."""
        from specdeck.console.state.opening import LAST_S, find_last_figures, find_opening

        history = engine.find_history()
        last = find_last_figures(history)
        start = history.first if engine.is_incident else last - LAST_S
        told = history.events(start, last, MOST_EARLIER)
        falls = self._falls_of(self.controller.selected, history)
        if falls is not None:
            for hour in falls.list_hours(start, last, last):
                falls.look_through(hour, last)
            told = (*told, *falls.between(start, last))
        opens = find_opening(history, told, last, is_incident=engine.is_incident)
        return past.move_to(self.view, opens, self.bounds)

    @property
    def is_recording(self) -> bool:
        """Whether the selected engine is a recording."""
        return self.controller.track.recorded

    @property
    def history(self) -> History | None:
        """The past of the selected engine; raises SpecdeckError where it cannot be read."""
        engine = self.controller.engine
        if isinstance(engine, RecordedEngine):
            return engine.find_history()
        return self._histories(self.controller.selected)

    @property
    def bounds(self) -> Bounds:
        """From when to when there is something to look at: nothing where it cannot be read."""
        live = not self.is_recording
        try:
            history = self.history
        except SpecdeckError as error:  # a moment of it may be shown all the same
            self.said, history = error.line(), None
        end = self.controller.clock()
        if not live and history is not None and not math.isnan(history.last):
            end = history.last
        first = end if history is None or math.isnan(history.first) else history.first
        return Bounds(min(first, end), end, live)

    @property
    def when(self) -> When:
        """Which moment is shown."""
        controller, view = self.controller, self.view
        live = controller.track
        t = view.t
        if t is None and live.recorded:
            t = None if live.reading is None else live.reading.t
        ago = None if t is None else max(0.0, controller.clock() - t)
        if live.recorded:
            return When("replay", t, ago, view.playing)
        if view.t is None:
            return When("now")
        return When("past" if self._held is None else "frozen", t, ago, view.playing)

    @property
    def track(self) -> Track:
        """What is known of the selected engine at that moment."""
        controller, t = self.controller, self.view.t
        index, live = controller.selected, controller.track
        if t is None:
            return self._add_earlier(index, live)
        if self._held is not None:
            return self._held[index]
        key = (index, self.view)
        if self._folded is not None and self._folded[0] == key:
            return self._folded[1]
        try:
            history = self.history
            found = (
                Track(live.name, live.url, live.recorded, past=True)
                if history is None
                else past.fold_past(history, live, t, silence_s=self._silence_s)
            )
        except SpecdeckError as error:
            self.said = error.line()
            found = Track(live.name, live.url, live.recorded, past=True)
        falls = self._list_falls(t - past.DAY_S, t)
        self._folded = key, _add_events(found, map(past.as_event, falls))
        return self._folded[1]

    def _list_falls(self, start: float, end: float) -> tuple[PastEvent, ...]:
        """The falls of the selected engine from one moment to another; those of hours long before
        follow in the background."""
        index, now = self.controller.selected, self.controller.clock()
        try:
            falls = self._falls_of(index, self.history)
            if falls is None:
                return ()
            hours = falls.list_hours(start, end, now)
            for hour in hours[:HOURS_AT_ONCE]:
                falls.look_through(hour, now)
        except SpecdeckError as error:
            self.said = error.line()
            return ()
        if len(hours) > HOURS_AT_ONCE:
            self._look_back(index, start, end)
        return falls.between(start, end)

    def _falls_of(self, index: int, history: History | None) -> Falls | None:
        """What is known of the falls in a record; of another one than before nothing is yet."""
        from specdeck.console.state.falls import Falls

        if history is None:
            return None
        found = self._falls.get(index)
        if found is None or found.history is not history:
            live = not self.controller.tracks[index].recorded
            found = self._falls[index] = Falls(history, live)
        return found

    def _look_back(self, index: int, start: float, end: float) -> None:
        """Look for falls in a thread, and show those that there are."""
        if index not in self._looking:
            self._looking.add(index)
            self.controller.spawn(self._look_through(index, start, end), "falls")

    async def _look_through(self, index: int, start: float, end: float) -> None:
        now = self.controller.clock()
        try:
            # As for any past: SQLite is imported, and the record opened, where it is read.
            falls = self._falls_of(index, await asyncio.to_thread(self._histories, index))
            for hour in [] if falls is None else falls.list_hours(start, end, now):
                if falls is not None and await asyncio.to_thread(falls.look_through, hour, now):
                    self._folded = self._stretch = None
                    self.controller.refresh()
        except SpecdeckError:
            pass  # a key that looks back says why
        finally:
            self._looking.discard(index)

    def _add_earlier(self, index: int, live: Track) -> Track:
        """The track of now, with what was recorded before this console was opened."""
        if live.recorded or live.reading is None or not live.points:
            return live
        if index not in self._earlier:
            self._earlier[index] = self._read_earlier(index, live.points[0].t)
        now = self.controller.clock()
        if now >= self._look_at.get(index, 0.0):
            self._look_at[index] = now + LOOK_S
            self._look_back(index, now - past.DAY_S, now)
        known = self._falls.get(index)
        falls = () if known is None else known.between(now - past.DAY_S, now)
        events, points = self._earlier[index]
        if not events and not points and not falls:
            return live
        if self._joined is None or self._joined[0] != (live, len(falls)):
            found = past.prepend(live, events, points)
            self._joined = (live, len(falls)), _add_events(found, map(past.as_event, falls))
        return self._joined[1]

    def _read_earlier(self, index: int, first: float) -> _Earlier:
        """What is recorded of an engine before its `first` reading."""
        apart = self.controller.interval
        try:
            history = self._histories(index)
            if history is None:
                return (), ()
            told = history.events(self._opened - past.DAY_S, self._opened, MOST_EARLIER)
            points = past.read_points(history, first, apart, EARLIER_POINTS)
        except SpecdeckError:
            return (), ()  # a key that looks back says why
        events = (past.as_event(one) for one in told if one.text and one.t < self._opened)
        return tuple(events), points

    @property
    def tracks(self) -> tuple[Track, ...]:
        """What is known of every engine at that moment; of the past, of the selected one alone."""
        controller = self.controller
        if self.view.t is None:
            return tuple(controller.tracks)
        if self._held is not None:
            return self._held
        others = [Track(one.name, one.url, one.recorded, past=True) for one in controller.tracks]
        others[controller.selected] = self.track
        return tuple(others)

    def stretch(self, columns: int) -> Stretch | None:
        """What the charts show on so many columns; None for a column for each reading."""
        view = self.view
        if columns <= 0 or (view.span is None and (view.t is None or self._held is not None)):
            return None
        if view.t is not None and view.start is not None:
            return self._read_stretch(view.t, view.start, view.seconds, columns)
        return self._recent_stretch(view.seconds, columns)

    def _read_stretch(self, t: float, start: float, seconds: float, columns: int) -> Stretch:
        """A stretch of the past; where it reaches up to now, it is read again as time goes on."""
        now = self.controller.clock()
        found = self._ask_history(start, seconds, columns)
        if self.bounds.live and now < start + seconds + past.LATE_S and now >= self._stretch_until:
            self._stretch = None
            found = self._ask_history(start, seconds, columns)
            self._stretch_until = now + max(TICK_S, seconds / columns)
        falls = self._list_falls(start, start + seconds)
        return replace(found, cursor=t, events=(*found.events, *falls))

    def _recent_stretch(self, seconds: float, columns: int) -> Stretch:
        """The latest readings of a live engine, and before them what is recorded."""
        from specdeck.console.state.stretch import fold_recent, join_stretches

        track = self.track
        recent = fold_recent(track, seconds, columns)
        first = track.points[0].t if track.points else self.controller.clock()
        missing = past.place(first, recent.start, seconds, columns) or 0
        if not missing:
            return recent
        part = seconds * missing / columns
        earlier = self._ask_history(recent.start, part, missing)
        return join_stretches(earlier, recent)

    def _ask_history(self, start: float, seconds: float, columns: int) -> Stretch:
        """What is recorded of a stretch; the last one that was asked for is kept."""
        from specdeck.console.state.stretch import blank_stretch, read_stretch

        key = (self.controller.selected, start, seconds, columns)
        if self._stretch is not None and self._stretch[0] == key:
            return self._stretch[1]
        found = None
        try:
            if (history := self.history) is not None:
                found = read_stretch(history, start, seconds, columns)
        except SpecdeckError as error:
            self.said = error.line()
        found = found or blank_stretch(start, seconds, columns)
        self._stretch = key, found
        return found

    def _move(self, change: Callable[[TimeView, Bounds], TimeView]) -> None:
        """Look at another moment, or say why there is none."""
        self.said = None
        try:
            if self.history is None:
                self.said = NOTHING_RECORDED
            else:
                self._take(change(self.view, self.bounds))
        except SpecdeckError as error:
            self.said = error.line()
        self.controller.refresh()

    def _take(self, view: TimeView) -> None:
        self._held = None
        self.view = view
        if not view.playing:
            self._stop()

    def step(self, by: int) -> None:
        """A step on or back; a step is a sixtieth of what the charts show."""
        self._move(lambda view, bounds: past.step(self._from_here(view), by, bounds))

    def go(self, t: float | None) -> None:
        """To a moment, or to now."""
        if t is None:
            self.end()
        else:
            self._move(lambda view, bounds: replace(past.move_to(view, t, bounds), playing=False))

    def step_event(self, by: int) -> None:
        """To the next event, or to the one before."""

        def change(view: TimeView, bounds: Bounds) -> TimeView:
            found = self._find_event(by, bounds)
            if found is None:
                where = "after" if by > 0 else "before"
                self.said = f"no event is recorded {where} this"
                return view
            return replace(past.move_to(view, found.t, bounds), playing=False)

        self._move(change)

    def _find_event(self, by: int, bounds: Bounds) -> PastEvent | None:
        history = self.history
        t = self._from_here(self.view).t
        if history is None or (t is None and by > 0):
            return None
        at = bounds.last if t is None else t
        told = self._find_told(history, at, by)
        fall = self._find_fall(at, by, None if told is None else told.t)
        both = [one for one in (told, fall) if one is not None]
        return min(both, key=lambda one: abs(one.t - at), default=None)

    def _find_fall(self, at: float, by: int, told: float | None) -> PastEvent | None:
        """The next fall within a day, or the one before; none beyond the moment `told`."""
        now = self.controller.clock()
        falls = self._falls_of(self.controller.selected, self.history)
        if falls is None:
            return None
        reach = at + by * past.DAY_S if told is None else told
        start, end = min(at, reach), max(at, reach)
        hours = falls.list_hours(start, end, now)
        for hour in hours if by < 0 else reversed(hours):
            if falls.look_through(hour, now) and self._beyond(falls, at, by, start, end):
                break
        found = self._beyond(falls, at, by, start, end)
        return min(found, key=lambda one: abs(one.t - at), default=None)

    def _beyond(
        self, falls: Falls, at: float, by: int, start: float, end: float
    ) -> list[PastEvent]:
        return [one for one in falls.between(start, end) if (one.t - at) * by > 0]

    def _find_told(self, history: History, at: float, by: int) -> PastEvent | None:
        find = history.next_event if by > 0 else history.previous_event
        for _ in range(_MOST_PASSED):
            found = find(at)
            if found is None or (found.text and found.kind not in past.QUIET):
                return found
            at = found.t
        return None

    def _from_here(self, view: TimeView) -> TimeView:
        """With the moment that is shown, where a recording plays by itself."""
        return replace(view, t=self.when.t) if self.is_recording and view.t is None else view

    def widen(self, by: int) -> None:
        """Have the charts show the next longer span, or the next shorter one."""
        self.said = None
        bounds = self.bounds if self.view.t is not None else Bounds(0.0, 0.0)
        self.view = past.widen(self.view, by, bounds)
        self.controller.refresh()

    def toggle_freeze(self) -> None:
        """Hold the picture still, and let it go on; in the past, from there."""
        self.said = None
        view, now = self.view, self.controller.clock()
        if view.playing:
            self._stop()
            self.view = replace(view, playing=False)
        elif view.t is None and not self.is_recording:
            tracks = enumerate(self.controller.tracks)
            self._held = tuple(self._add_earlier(index, one) for index, one in tracks)
            self.view = replace(view, t=now, start=None)
        elif self._held is not None:
            self.end()
        elif view.t is None:
            self._move(lambda view, bounds: past.move_to(view, self.when.t or bounds.first, bounds))
        else:
            self.view = replace(view, playing=True)
            self._stop()
            self._player = self.controller.spawn(self._play(), "time")
        self.controller.refresh()

    def end(self) -> None:
        """Now, or the end of a recording."""
        self.said, self._held = None, None
        self._stop()
        try:
            self.view = past.now(self.view, self.bounds)
        except SpecdeckError as error:
            self.said = error.line()
        self.controller.refresh()

    def _stop(self) -> None:
        if self._player is not None:
            self._player.cancel()
            self._player = None

    async def _play(self) -> None:
        """The moment moves on until it is held still, or there is no more."""
        engine = self.controller.engine
        speed = engine.speed if isinstance(engine, RecordedEngine) else 1.0
        while self.view.playing and self.view.t is not None:
            await self.controller.sleep(TICK_S)
            if not self.view.playing or self.view.t is None:
                return
            bounds, t = self.bounds, self.view.t + speed * TICK_S
            self.view = past.move_to(self.view, t, bounds)
            if not bounds.live and t >= bounds.last:
                self.view = replace(self.view, playing=False)
            self.controller.refresh()

    def refuse(self, local: LocalTime, end: str) -> bool:
        """Whether nothing can be done, as another moment than now is shown; says why not.

        `end` is the key that goes back to now.
        """
        from specdeck.console.state.moment import format_ago, format_moment

        when = self.when
        if self.view.t is None or when.t is None:
            return False
        self.said = "this is a recording: there is no engine to change"
        if when.kind != "replay":
            ago = format_ago(when.ago or 0.0)
            moment = format_moment(when.t, local, now=self.controller.clock())
            self.said = f"this is {moment}, {ago}: press {end} for now"
        self.controller.refresh()
        return True

    def find_box(self) -> BoxHistory | None:
        """The black box of the selected engine; None where there is none that can be read."""
        from specdeck.engine.blackbox.history import History as BoxHistory

        try:
            history = self.history
        except SpecdeckError:
            return None
        return history if isinstance(history, BoxHistory) else None

    def find_recorded(self) -> tuple[BoxHistory, float, float]:
        """The black box and the stretch of time that causes of this moment are judged by.

        That is what the charts show, from the last fall before the moment on where there is one.
        Raises Unsupported without a black box.
        """
        history, view = self.find_box(), self.view
        if history is None or view.t is None or view.start is None:
            raise Unsupported("causes are ranked by cohorts, and none are recorded here")
        falls = self._list_falls(view.start, view.t)
        start = falls[-1].t if falls else view.start
        # Whole seconds: a command that names them judges the same.
        end = math.ceil(min(view.start + view.seconds, self.bounds.last))
        return history, float(math.floor(min(start, end - JUDGED_S))), float(end)

    def compare(self, t: float) -> tuple[Window | None, Window | None]:
        """The work of half a minute before a moment, and of half a minute after it."""
        try:
            if (history := self.history) is None:
                return None, None
            return history.window(t - AROUND_S, t), history.window(t, t + AROUND_S)
        except SpecdeckError as error:
            self.said = error.line()
            return None, None

    @property
    def end_time(self) -> float:
        """Now, or the end of a recording: what a moment is told from."""
        return self.bounds.last

    def describe_bounds(self, local: LocalTime) -> str | None:
        """From when to when there is something to look at; None, and said why, without any."""
        from specdeck.console.state.moment import format_moment

        self.said = None
        try:
            history, bounds = self.history, self.bounds
        except SpecdeckError as error:
            self.said, history = error.line(), None
        else:
            self.said = None if history is not None else NOTHING_RECORDED
        if history is None:
            self.controller.refresh()
            return None
        last = "now" if bounds.live else format_moment(bounds.last, local)
        return f"recorded from {format_moment(bounds.first, local)} to {last}"
