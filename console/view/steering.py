"""From a wish to a request, and from the engine's answer back to the track."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdeck.console.view import undoing
from specdeck.console.view.news import short
from specdeck.console.view.track import Track, Want
from specdeck.console.widgets.format import Spelt
from specdeck.engine.control.protocol import Applied, Change, EngineState, with_implied_policy
from specdeck.engine.errors import Conflict, SpecdeckError
from specdeck.engine.metrics.reading import Reading


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a key does nothing, and what would help."""

    reason: str
    remedy: str | None = None

    def line(self) -> str:
        """Both on one line."""
        return f"{self.reason}: {self.remedy}" if self.remedy else self.reason


def refusal(track: Track, want: Want, *, armed: bool, spelt: Spelt) -> Refusal | None:
    """Why the engine cannot be asked for this; None when it can.

    >>> refusal(Track("a", "http://a"), Want(k=3), armed=True, spelt=str)
    Refusal(reason='the engine has not answered yet', remedy=None)
    """
    if track.recorded:
        return Refusal("this is a recording: nothing runs that could be changed")
    reading = track.reading
    if reading is None:
        return Refusal("the engine has not answered yet")
    if not reading.up:
        return Refusal("the engine is down", "its state is on the screen")
    if reading.state is None:
        error = reading.control_error
        if error is None:
            return Refusal("the engine runs without the specdeck plugin")
        return Refusal(str(error), error.remedy)
    if not armed:
        return Refusal("control is read-only", f"press {spelt('control.arm')} to arm it")
    busy = _busy(track, reading.state, want, spelt)
    if busy is not None:
        return busy
    for name in _needed(want):
        able = reading.state.can(name)
        if not able.available:
            return Refusal(f"{_spoken(name)}: {able.reason or 'not on this engine'}", able.remedy)
    return _beyond(reading.state, want)


def _busy(track: Track, state: EngineState, want: Want, spelt: Spelt) -> Refusal | None:
    if track.sweeping:
        return Refusal("a sweep turns k", f"{spelt('sweep.toggle')} stops it and gives k back")
    if want.cancel and state.trial is None and state.lease is None:
        return Refusal("there is nothing on trial")
    if want.trial_s is None:
        return None
    if state.trial is not None or state.lease is not None:
        return Refusal("a trial is on already", f"{spelt('change.undo')} takes it back")
    if track.want is not None:
        return Refusal("a change is on its way", "try again when it is there")
    return None


def _needed(want: Want) -> tuple[str, ...]:
    """The capabilities that a wish rests on.

    >>> _needed(Want(k=3, policy="goodput"))
    ('live_k', 'policy.goodput')
    """
    policy = None if want.policy is None else f"policy.{want.policy}"
    needed = (
        "live_k" if want.k is not None else None, want.mode and "target_only", policy,
        want.breaker and "breaker", "trial" if want.trial_s is not None else None,
    )  # fmt: skip
    return tuple(name for name in needed if name)


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("target only", "target-only").replace(".", " ")


def _beyond(state: EngineState, want: Want) -> Refusal | None:
    if want.k is None or 0 <= want.k <= state.k_max:
        return None
    if want.k < 0:
        return Refusal("k is 0 already", "+ drafts again")
    return Refusal(
        f"k_max is {state.k_max}: the engine's buffers are sized by it",
        f"start it with num_speculative_tokens {want.k}",
    )


def wished(track: Track, want: Want) -> Track:
    """The track with one more wish: shown at once, whatever the engine will say."""
    return replace(track, want=want if track.want is None else track.want.then(want))


def request(track: Track, who: str) -> Change | None:
    """What to ask the engine for; None when nothing is wished."""
    return None if track.want is None else track.want.change(who, track.version)


def answered(track: Track, asked: Want, applied: Applied, t: float, seconds: float) -> Track:
    """The track after the engine's word on a wish."""
    text = f"{_word(asked, applied)} · applied in {seconds * 1000:.0f} ms"
    track = track.told(t, text, "good", reason=asked.reason)
    for text in applied.notices:
        track = track.told(t, text, "warn")
    judged = asked.trial_s is not None
    if applied.applied != applied.before and not judged:
        track = _marks(track, applied)
    track = replace(track, want=None if track.want == asked else track.want)
    track = undoing.noted(track, asked, applied)
    if judged or asked.cancel:  # what is in force by now is for the next reading to say
        return replace(track, version=applied.version)
    return replace(
        track,
        version=applied.version,
        reading=_patched(track.reading, applied),
        figures=_patched(track.figures, applied),
        known=None if track.known is None else _turned(track.known, applied),
    )


def _word(asked: Want, applied: Applied) -> str:
    if asked.cancel:
        return "the trial is taken back"
    knobs = ", ".join(
        f"{name} {_value(applied.before.get(name, '?'))} → {_value(value)}"
        for name, value in applied.applied.items()
    )
    if asked.trial_s is not None:
        return f"on trial: {knobs}"
    return f"undone, {knobs}" if asked.origin == "undo" else knobs


def _value(value: object) -> str:
    return "none" if value is None else str(value)


def _marks(track: Track, applied: Applied) -> Track:
    mode, k = applied.applied.get("mode"), applied.applied.get("k")
    if "policy" in applied.applied:
        track = track.marked(applied.applied["policy"])
    if mode is not None:
        track = track.marked(short(mode))
    return track if k is None else track.marked(f"k{k}")


def _patched(reading: Reading | None, applied: Applied) -> Reading | None:
    """The reading with the engine's newest word in it, until the next one is read."""
    if reading is None or reading.state is None:
        return reading
    return replace(reading, state=_turned(reading.state, applied))


def _turned(state: EngineState, applied: Applied) -> EngineState:
    knobs = with_implied_policy(applied.applied)
    k_set, mode = knobs.get("k", state.k_set), knobs.get("mode", state.mode)
    policy = knobs.get("policy", state.policy)
    chosen = k_set if policy == "fixed" else state.k
    state = replace(
        state, k=0 if mode == "target-only" else chosen, k_set=k_set, mode=mode, policy=policy,
        version=applied.version, last_change=None,  # the next reading brings this one
    )  # fmt: skip
    if "breaker" in knobs:
        return replace(state, breaker=knobs["breaker"])
    ended = policy == "fixed" and state.policy_reason is not None
    return replace(state, policy_reason=None) if ended else state


def refused(track: Track, error: SpecdeckError, t: float) -> Track:
    """The track after a wish that the engine would not fulfil; nothing stays pending."""
    track = undoing.restored(track)
    if isinstance(error, Conflict):
        # The next reading says who it was and brings the version to ask with.
        track = track.told(t, f"not changed: {error.line()}", "warn")
        return replace(track, want=None, version=None)
    return replace(track.told(t, f"not changed: {error.line()}", "bad"), want=None)
