"""A reading folded into a track: the points, marks and events that it makes."""

from __future__ import annotations

from dataclasses import replace

from specdeck.console.view import news
from specdeck.console.view.track import POINTS, Point, Track
from specdeck.console.widgets.format import duration
from specdeck.engine.metrics.reading import Reading


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
    if reading.state is None:
        return news.silence(track)
    return replace(news.control(track, reading.state), known=reading.state)


def _newest(track: Track, reading: Reading) -> Reading:
    """The reading, with the state kept that an answer has brought since it was taken."""
    ours, theirs = track.state, reading.state
    if ours is None or theirs is None or ours.instance != theirs.instance:
        return reading
    return replace(reading, state=ours) if theirs.version < ours.version else reading


def _presence(before: Track, track: Track, reading: Reading) -> Track:
    if reading.restarted:
        # What was changed, or asked for, in its former life says nothing about this one.
        track = replace(
            track, version=None, want=None, undos=(), undoing=(), steered=False, known=None,
            lost=None, said=None,
        ).marked("restart")  # fmt: skip
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
