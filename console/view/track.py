"""What a screen remembers of one engine: readings folded into one value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from specdeck.console.view.cell import Tone
from specdeck.console.view.words import duration, oneline
from specdeck.engine.control.protocol import Change, EngineState, Mode
from specdeck.engine.metrics.reading import Reading

POINTS: Final = 1200
"""Samples kept for the charts; wider terminals do not exist."""
EVENTS: Final = 200


@dataclass(frozen=True, slots=True)
class Point:
    """One reading's share of the charts; None is a gap in the line."""

    t: float
    tokens: float | None = None
    acceptance: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the time axis where something changed."""

    at: int
    """Which reading, counted from the first."""
    label: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in plain words."""

    t: float
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Want:
    """What the operator asked for and the engine has not answered yet."""

    k: int | None = None
    mode: Mode | None = None
    reason: str = "key"

    def then(self, later: Want) -> Want:
        """Both wishes as one; the later one wins where they meet.

        >>> Want(k=4).then(Want(k=3)).then(Want(mode="target-only"))
        Want(k=3, mode='target-only', reason='key')
        """
        return Want(
            later.k if later.k is not None else self.k, later.mode or self.mode, later.reason
        )

    def change(self, who: str, version: int | None) -> Change:
        """The request that says so."""
        return Change(k=self.k, mode=self.mode, reason=self.reason, who=who, expect_version=version)


@dataclass(frozen=True, slots=True)
class Track:
    """One engine over time, as far as a screen needs it."""

    name: str
    url: str
    reading: Reading | None = None
    """The latest one, whatever it says."""
    figures: Reading | None = None
    """The latest one with a sample: shown muted while the engine is down."""
    since: float | None = None
    """Unix time at which the engine came up or went away."""
    points: tuple[Point, ...] = ()
    total: int = 0
    """Readings so far; `points` are the last of them."""
    marks: tuple[Mark, ...] = ()
    events: tuple[Event, ...] = ()
    want: Want | None = None
    version: int | None = None
    """The control version that the next change may expect."""
    undos: tuple[Want, ...] = ()
    """What takes this console's changes back, the latest last."""

    @property
    def up(self) -> bool | None:
        """Whether the engine answered last time; None before the first reading."""
        return None if self.reading is None else self.reading.up

    @property
    def state(self) -> EngineState | None:
        """The plugin's latest word; None without one or while the engine is down."""
        return None if self.reading is None else self.reading.state

    @property
    def k_wanted(self) -> int | None:
        """The k that the operator has asked for: shown before the engine answers."""
        if self.want is not None and self.want.k is not None:
            return self.want.k
        return None if self.state is None else self.state.k_set

    @property
    def mode_wanted(self) -> Mode | None:
        """The mode that the operator has asked for."""
        if self.want is not None and self.want.mode is not None:
            return self.want.mode
        return None if self.state is None else self.state.mode

    def told(self, t: float, text: str, tone: Tone = "plain") -> Track:
        """The same with one more event."""
        return replace(self, events=(*self.events, Event(t, oneline(text), tone))[-EVENTS:])

    def marked(self, label: str) -> Track:
        """The same with a mark at the latest reading, where the last change wins."""
        at = self.total - 1
        kept = tuple(mark for mark in self.marks if at - POINTS < mark.at < at)
        return replace(self, marks=(*kept, Mark(at, label)))


def after(track: Track, reading: Reading) -> Track:
    """The track with one more reading, and the events and marks that it makes."""
    before = track
    reading = _newest(track, reading)
    window = reading.window
    point = Point(reading.t)
    if window is not None:
        point = Point(reading.t, window.tokens_per_second, window.acceptance_rate)
    changed = before.up is not reading.up
    track = replace(
        track,
        reading=reading,
        figures=reading if reading.up else track.figures,
        since=reading.t if changed else track.since,
        points=(*track.points, point)[-POINTS:],
        total=track.total + 1,
    )
    track = _presence(before, track, reading)
    if reading.state is not None:
        track = _control(before, track, reading.state)
    return track


def _newest(track: Track, reading: Reading) -> Reading:
    """The reading, with the state kept that an answer has brought since it was taken."""
    ours, theirs = track.state, reading.state
    if ours is None or theirs is None or ours.instance != theirs.instance:
        return reading
    return replace(reading, state=ours) if theirs.version < ours.version else reading


def _presence(before: Track, track: Track, reading: Reading) -> Track:
    if reading.restarted:
        # What was changed, or asked for, in its former life says nothing about this one.
        track = replace(track, version=None, want=None, undos=()).marked("restart")
        return track.told(reading.t, "the engine was started anew", "warn")
    if before.up is reading.up:
        return track
    if not reading.up:
        why = "no answer" if reading.error is None else str(reading.error)
        return track.marked("down").told(reading.t, why, "bad")
    if before.up is None:
        return track
    gone = duration(reading.t - (before.since or reading.t))
    return track.marked("up").told(reading.t, f"answers again after {gone}", "good")


def _control(before: Track, track: Track, state: EngineState) -> Track:
    figures = before.figures
    old = None if figures is None else figures.state
    if old is None or old.instance != state.instance:
        return replace(track, version=state.version)
    if old.mode != state.mode:
        track = track.marked(short(state.mode))
    if old.k_set != state.k_set:
        track = track.marked(f"k{state.k_set}")
    t = track.points[-1].t
    if old.breaker != state.breaker:
        tone: Tone = "good" if state.breaker == "closed" else "bad"
        track = track.told(t, f"breaker {state.breaker}, was {old.breaker}", tone)
    if before.version is None or state.version > before.version:
        track = _by_others(replace(track, version=state.version), state, t)
    return track


def short(mode: Mode) -> str:
    """A mode in a mark on the time axis."""
    return "target" if mode == "target-only" else "spec"


def _by_others(track: Track, state: EngineState, t: float) -> Track:
    """Says who turned a knob that this console did not turn."""
    change = state.last_change
    if change is None:
        return track
    knobs = ", ".join(
        f"{name} {change.before.get(name, '?')} → {value}" for name, value in change.after.items()
    )
    reason = f" ({change.reason})" if change.reason else ""
    return track.told(t, f"{change.who} changed {knobs}{reason}", "accent")
