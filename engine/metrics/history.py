"""The last readings of one engine as points to draw, and what happened meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from specdeck.engine.control.protocol import EngineState
from specdeck.engine.metrics.reading import Reading

Kind = Literal["k", "mode", "restart", "down"]

POINTS = 900
"""A quarter of an hour at one reading a second."""

EVENTS = 200


@dataclass(frozen=True, slots=True)
class Marker:
    """Something to mark on a chart."""

    t: float
    """Unix time, seconds."""
    kind: Kind
    text: str
    """A word or two, such as `k 5→3`, `target-only` or `restart`."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line in the log of the screen."""

    t: float
    """Unix time, seconds."""
    text: str
    """Plain words, with who and why where the engine knows it."""


@dataclass(frozen=True, slots=True)
class Point:
    """One reading; None breaks a line: idle, down, or the first after a restart."""

    t: float
    """Unix time, seconds."""
    tokens_per_second: float | None = None
    acceptance_rate: float | None = None
    draft_tokens_per_draft: float | None = None
    marker: Marker | None = None
    """The weightiest change since the point before."""


@dataclass(frozen=True, slots=True)
class History:
    """Bounded: the oldest points and events give way."""

    points: tuple[Point, ...] = ()
    events: tuple[Event, ...] = ()
    news: int = 0
    """How many of `events`, from the end, the last reading brought."""
    up: bool | None = None
    """None before the first reading."""
    state: EngineState | None = None
    """The last one known: a plugin that falls silent for a moment has changed nothing."""
    limit: int = POINTS

    @property
    def fresh(self) -> tuple[Event, ...]:
        """The events of the last reading."""
        return self.events[len(self.events) - self.news :]

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Every marker that is still on the chart."""
        return tuple(point.marker for point in self.points if point.marker)


def advance(history: History, reading: Reading) -> History:
    """The history with one more reading."""
    happened = _happened(history, reading)
    window = reading.window
    point = Point(
        reading.t,
        tokens_per_second=window.tokens_per_second if window else None,
        acceptance_rate=window.acceptance_rate if window else None,
        draft_tokens_per_draft=window.draft_tokens_per_draft if window else None,
        marker=next((marker for marker, _ in happened if marker), None),
    )
    events = tuple(event for _, event in happened)
    return replace(
        history,
        points=(*history.points, point)[-history.limit :],
        events=(*history.events, *events)[-EVENTS:],
        news=len(events),
        up=reading.up,
        state=reading.state or (None if _anew(history, reading) else history.state),
    )


_Happening = tuple[Marker | None, Event]


def _happened(history: History, reading: Reading) -> list[_Happening]:
    """What the reading shows to have happened since the last one, the weightiest first."""
    t = reading.t
    if not reading.up:
        if history.up is False:
            return []
        reason = reading.error.line() if reading.error else "no answer"
        return [(Marker(t, "down", "down"), Event(t, f"the engine is down: {reason}"))]
    if _anew(history, reading):
        return [(Marker(t, "restart", "restart"), Event(t, "the engine was started anew"))]
    back: list[_Happening] = []
    if history.up is False:
        back = [(None, Event(t, "the engine answers again"))]
    if history.state is None or reading.state is None:
        return back
    return back + _changes(t, history.state, reading.state)


def _anew(history: History, reading: Reading) -> bool:
    before, after = history.state, reading.state
    other = before is not None and after is not None and before.instance != after.instance
    return reading.restarted or other


def _changes(t: float, before: EngineState, after: EngineState) -> list[_Happening]:
    by = _by(before, after)
    found: list[_Happening] = []
    if before.mode != after.mode:
        text = "target-only" if after.mode == "target-only" else f"speculate k={after.k}"
        found.append((Marker(t, "mode", text), Event(t, text + by)))
    elif before.mode == "speculate" and before.k != after.k:
        text = f"k {before.k}→{after.k}"
        found.append((Marker(t, "k", text), Event(t, text + by)))
    elif before.k_set != after.k_set:
        text = f"k {before.k_set}→{after.k_set}"
        later = " once speculation is back on" if after.mode == "target-only" else ""
        found.append((Marker(t, "k", text), Event(t, text + later + by)))
    found += [
        (None, Event(t, f"{name} {old}→{new}{by}"))
        for name, old, new in (
            ("policy", before.policy, after.policy),
            ("fallback", before.fallback, after.fallback),
            ("breaker", before.breaker, after.breaker),
        )
        if old != new
    ]
    return found


def _by(before: EngineState, after: EngineState) -> str:
    """Who did it and why, where it is the engine's last change that explains the difference."""
    change = after.last_change
    if change is None or before.version == after.version:
        return ""
    return f" by {change.who}" + (f": {change.reason}" if change.reason else "")
