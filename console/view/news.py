"""What a newer state of the plugin, or its silence, gives to tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from specdeck.console.view.track import Said, Track
from specdeck.console.widgets.format import duration
from specdeck.engine.control.protocol import EngineState, Mode

REASONS_APART_S: Final = 5.0
"""A policy may move k in every step; its reasons are told no faster than they are read."""


def silence(track: Track) -> Track:
    """The track after a reading without a state: says so once, if there was one before."""
    reading = track.reading
    if track.known is None or reading is None or not reading.up or track.lost is not None:
        return track
    error = reading.control_error
    why = "the plugin does not answer" if error is None else error.line()
    return replace(track.told(reading.t, f"no control: {why}", "warn"), lost=reading.t)


def control(track: Track, state: EngineState) -> Track:
    """The track after a newer state, compared with the last one that was known."""
    t = track.points[-1].t
    if track.lost is not None:
        gone = duration(t - track.lost)
        track = replace(track.told(t, f"control is back after {gone}", "good"), lost=None)
    old = track.known
    if old is None or old.instance != state.instance:
        return replace(track, version=state.version, said=Said(t, state.policy_reason))
    if not _swept(state) and not track.sweeping:
        track = _turned(track, old, state)
    track = _alarm(_breaker(track, old, state, t), old, state, t)
    if track.version is None or state.version > track.version:
        track = _by_others(replace(track, version=state.version), old, state, t)
    return _reason(track, state, t)


def _turned(track: Track, old: EngineState, state: EngineState) -> Track:
    """Marks what was set; the k's that a policy chooses are no knob."""
    if old.mode != state.mode:
        track = track.marked(short(state.mode))
    if old.policy != state.policy:
        track = track.marked(state.policy)
    return track if old.k_set == state.k_set else track.marked(f"k{state.k_set}")


def _breaker(track: Track, old: EngineState, state: EngineState, t: float) -> Track:
    if old.breaker == state.breaker:
        return track
    # The reason is part of this event, and none of its own.
    track = replace(track, said=Said(t, state.policy_reason))
    if state.breaker == "closed":
        return track.marked("breaker closed").told(t, f"breaker closed, was {old.breaker}", "good")
    if old.breaker == "closed":
        track = track.marked("breaker open")
    if old.breaker == "closed" or state.breaker == "open":
        why = f": {state.policy_reason}" if state.policy_reason else f", was {old.breaker}"
        track = track.told(t, f"breaker open{why}", "bad")
    if state.breaker == "half-open":
        track = track.told(t, "breaker half-open: it tries whether drafts pay again", "warn")
    return track


def _reason(track: Track, state: EngineState, t: float) -> Track:
    """Tells why a policy has k where it is, when that is new."""
    said = track.said
    if said is not None and said.text == state.policy_reason:
        return track
    if state.policy_reason is None:
        return replace(track, said=None)
    if said is not None and said.text is not None and t - said.t < REASONS_APART_S:
        return track
    track = replace(track, said=Said(t, state.policy_reason))
    last = state.last_change
    if last is not None and last.reason == state.policy_reason:
        return track  # the change itself has been told
    return track.told(t, f"{state.policy}: {state.policy_reason}")


def short(mode: Mode) -> str:
    """A mode in a mark on the time axis."""
    return "target" if mode == "target-only" else "spec"


def _alarm(track: Track, old: EngineState, state: EngineState, t: float) -> Track:
    """Acceptance that is too good: streams that repeat themselves."""
    if state.alarm is None or state.alarm == old.alarm:
        return track
    return track.told(t, f"alarm: {state.alarm}", "bad")


def _swept(state: EngineState) -> bool:
    """Whether the last change was one of a sweep's many."""
    change = state.last_change
    return change is not None and change.origin == "sweep"


def _by_others(track: Track, old: EngineState, state: EngineState, t: float) -> Track:
    """Says who turned a knob that this console did not turn."""
    change = state.last_change
    if track.sweeping:
        return track
    if change is not None and _swept(state):
        return track if _swept(old) else track.told(t, f"{change.who} sweeps k", "accent")
    knobs = turned(change.before, change.after) if change is not None else ""
    if change is None or not knobs:
        return track
    reason = f" ({change.reason})" if change.reason else ""
    return track.told(t, f"{change.who} changed {knobs}{reason}", "accent")


def turned(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The knobs that moved, from where to where.

    >>> turned({"k": 6, "fallback": "warm"}, {"k": 6, "fallback": "cold"})
    'fallback warm → cold'
    """
    moved = [
        f"{name} {before.get(name, '?')} → {value}"
        for name, value in after.items()
        if name not in before or before[name] != value
    ]
    return ", ".join(moved)
