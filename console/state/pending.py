"""What is asked of an engine, from the key to the engine's word on it: not yet seen, or refused.

A wish is a `Change` without who asks and at which version; `Track.want` is what the engine has
not answered yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdeck.console.state.engine_state import Cause, Track, short_mode
from specdeck.console.state.undo import KEY, Sent, as_sent, undo_of_trial
from specdeck.console.widgets.format import KeyLabel
from specdeck.engine.errors import Conflict, SpecdeckError, Unauthorized
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.messages import (
    AppliedChange,
    Change,
    EngineState,
    Mode,
    Policy,
    knobs_on_trial,
    with_implied_policy,
)
from specdeck.engine.text import format_changes, format_duration

if TYPE_CHECKING:
    from specdeck.engine.blackbox.event import EventKind


def k_wanted(track: Track) -> int | None:
    """The k that the operator has asked for, shown before the engine answers.

    While a policy chooses, the k that it has chosen.
    """
    if track.want is not None and track.want.k is not None:
        return track.want.k
    if track.known is None:
        return None
    return track.known.k_set if policy_wanted(track) == "fixed" else track.known.k


def mode_wanted(track: Track) -> Mode | None:
    """The mode that the operator has asked for."""
    if track.want is not None and track.want.mode is not None:
        return track.want.mode
    return None if track.known is None else track.known.mode


def policy_wanted(track: Track) -> Policy | None:
    """The policy that the operator has asked for; a k of one's own asks for none."""
    if track.want is not None and track.want.policy is not None:
        return track.want.policy
    if track.want is not None and track.want.k is not None:
        return "fixed"
    return None if track.known is None else track.known.policy


def next_mode(track: Track) -> Change:
    """From speculation to target-only, or back."""
    alone = mode_wanted(track) == "target-only"
    return Change(mode="speculate" if alone else "target-only")


def next_policy(track: Track) -> Change:
    """Have the goodput policy choose k, or keep k where the operator has put it."""
    fixed = policy_wanted(track) in (None, "fixed")
    return Change(policy="goodput" if fixed else "fixed")


def next_breaker(track: Track) -> Change:
    """Open the breaker by hand, or reset it."""
    asked = None if track.want is None else track.want.breaker
    breaker = asked or (None if track.known is None else track.known.breaker)
    opens = breaker in (None, "closed")
    return Change(breaker="open" if opens else "closed", reason="from the console")


def add_wish(track: Track, wish: Change) -> Track:
    """The track with one more wish: shown at once, whatever the engine will say.

    One that is pressed twice is one.
    """
    want = wish if track.want is None else _add(track.want, wish)
    if want == track.want:
        return track
    unsent = () if wish.origin == "undo" else (*track.unsent, track.want)
    return replace(track, want=want, unsent=unsent)


def _end_wish(track: Track, asked: Change) -> Track:
    """The track once the engine has answered `asked`: what more is wanted by now stays."""
    return replace(track, want=None, unsent=()) if track.want == asked else track


def send_wish(track: Track) -> Track:
    """The track once what is wanted goes out to the engine."""
    sent = None if track.want is None else as_sent(track.want, track.in_force)
    return replace(track, sent=sent, unsent=())


def take_back_unsent(track: Track) -> tuple[Track, str]:
    """The track without the latest wish, which the engine has not been sent; in words as well.

    >>> track, said = take_back_unsent(add_wish(Track("a", "http://a"), Change(k=3)))
    >>> track.want, said
    (None, 'taken back before it was sent: k 3')
    """
    *unsent, want = track.unsent
    kept = {} if want is None else want.knobs()
    dropped = {} if track.want is None else track.want.knobs()
    what = {name: value for name, value in dropped.items() if kept.get(name) != value}
    said = f"taken back before it was sent: {format_changes({}, what or dropped)}"
    return replace(track, want=want, unsent=tuple(unsent)), said


def describe_sent(sent: Sent) -> str:
    """What the engine has not answered.

    >>> describe_sent(Sent(Change(k=3)))
    'the engine has not answered k 3'
    """
    if sent.asked.cancel:
        return "the engine has not answered yet: the trial is being taken back"
    return f"the engine has not answered {_name_wish(sent.asked)}"


def _name_wish(wish: Change) -> str:
    return "the trial" if wish.trial_s is not None else format_changes({}, wish.knobs())


def describe_left(track: Track) -> str | None:
    """What is left without an answer where the console ends now; None where all has one.

    >>> describe_left(add_wish(Track("a", "http://a"), Change(k=3)))
    'not sent: k 3'
    """
    sent, want = track.sent, track.want
    if sent is not None:
        said = f"not known whether it was changed: {describe_sent(sent)}"
        has_more = want != sent.asked or sent.undo
        return f"{said}; what was asked for since was not sent" if has_more else said
    if want is None:
        return None
    return f"not sent: {'taking the trial back' if want.cancel else _name_wish(want)}"


def undo_sent(track: Track, sent: Sent) -> Track:
    """The track once it is asked to take back what the engine has not answered."""
    track = replace(track, sent=replace(sent, undo=True))
    return track if sent.back is None else add_wish(track, sent.back)


def undo_answered(track: Track, sent: Sent, applied: AppliedChange, t: float) -> Track:
    """The same once the engine has answered, where only that tells how it is taken back."""
    if track.want is not None:
        return track.add_event(t, "not undone: more was asked for since", "warn", kind="change")
    if sent.asked.trial_s is not None:
        return add_wish(track, undo_of_trial(applied.trial))
    latest = track.undo.latest
    return track if latest is None else add_wish(replace(track, undo=track.undo.take()), latest)


def _add(before: Change, later: Change) -> Change:
    """Both wishes as one; the later one wins where they meet.

    >>> both = _add(_add(Change(k=4), Change(k=3)), Change(mode="target-only"))
    >>> both.k, both.mode, both.policy
    (3, 'target-only', None)
    >>> _add(Change(policy="goodput"), Change(k=3)).policy  # a k of one's own ends a policy
    """
    if later.cancel:
        return later
    breaker = later if later.breaker else before
    return Change(
        k=before.k if later.k is None else later.k,
        mode=later.mode or before.mode,
        policy=later.policy or (before.policy if later.k is None else None),
        breaker=breaker.breaker,
        probe=breaker.probe,
        parameters={**(before.parameters or {}), **(later.parameters or {})} or None,
        trial_s=later.trial_s,
        reason=later.reason,
        origin=later.origin,
    )


def as_request(wish: Change, who: str, version: int | None) -> Change:
    """What the engine is asked; `version` is the one that it is expected to be at."""
    change = replace(wish, who=who, expect_version=version, reason=wish.reason or KEY)
    if wish.trial_s is None:
        return change
    from specdeck.engine.operations.trial import as_trial

    return as_trial(change, trial_s=wish.trial_s)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a key does nothing, and what would help."""

    reason: str
    remedy: str | None = None

    def line(self) -> str:
        """Both on one line."""
        return f"{self.reason}: {self.remedy}" if self.remedy else self.reason


def find_obstacle(
    track: Track, wish: Change, *, armed: bool, key_label: KeyLabel
) -> Obstacle | None:
    """Why the engine cannot be asked for this; None where it can.

    >>> find_obstacle(Track("a", "http://a"), Change(k=3), armed=True, key_label=str)
    Obstacle(reason='the engine has not answered yet', remedy=None)
    """
    if track.recorded:
        return Obstacle("this is a recording: there is no engine to change")
    reading = track.reading
    if reading is None:
        return Obstacle("the engine has not answered yet")
    state = reading.word
    if not reading.up and state is None:
        return Obstacle("the engine is down", "its state is on the screen")
    if state is None:
        error = reading.control_error
        if error is None:
            return Obstacle("the engine runs without the specdeck plugin")
        return Obstacle(str(error), error.remedy)
    if not armed:
        return Obstacle("control is read-only", f"press {key_label('control.arm')} to arm it")
    if track.is_sweeping:
        stop = key_label("sweep.toggle")
        return Obstacle("a sweep is changing k", f"{stop} stops it and restores k")
    busy = _busy(state, wish, track.want, key_label)
    if busy is not None:
        return busy
    for name in _capabilities(wish):
        able = state.can(name)
        if not able.available:
            return Obstacle(f"{_spoken(name)}: {able.reason or 'not on this engine'}", able.remedy)
    return _beyond(state, wish)


def _busy(
    state: EngineState, wish: Change, pending: Change | None, key_label: KeyLabel
) -> Obstacle | None:
    if wish.cancel and state.trial is None and state.lease is None:
        return Obstacle("no trial is running")
    if pending is not None and pending.trial_s is not None and not wish.cancel:
        # Added to it, what was to be tried would be set for good.
        return Obstacle("a trial is being asked for", "try again once the engine has answered")
    if wish.trial_s is None:
        return None
    if state.trial is not None:
        return Obstacle("a trial is already running", f"{key_label('change.undo')} takes it back")
    if state.lease is not None:
        left = format_duration(state.lease.seconds_left)
        return Obstacle("a lease is running", f"the engine reverts it in {left}")
    if pending is not None:
        return Obstacle("a change is pending", "try again once it is applied")
    return None


def _capabilities(wish: Change) -> tuple[str, ...]:
    """The capabilities that a wish rests on.

    >>> _capabilities(Change(k=3, policy="goodput"))
    ('live_k', 'policy.goodput')
    """
    policy = None if wish.policy is None else f"policy.{wish.policy}"
    names = (
        "live_k" if wish.k is not None else None, wish.mode and "target_only", policy,
        wish.breaker and "breaker", "trial" if wish.trial_s is not None else None,
    )  # fmt: skip
    return tuple(name for name in names if name)


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("target only", "target-only").replace(".", " ")


def _beyond(state: EngineState, wish: Change) -> Obstacle | None:
    if wish.k is None:
        return None
    if (refused := state.find_refusal(wish.k)) is not None:
        return Obstacle(f"k={wish.k}: {refused.reason or 'not on this engine'}", refused.remedy)
    if 0 <= wish.k <= state.k_max:
        return None
    if wish.k < 0:
        return Obstacle("k is 0 already", "+ drafts again")
    return Obstacle(
        f"k_max is {state.k_max}: the engine's buffers are sized by it",
        f"start it with num_speculative_tokens {wish.k}",
    )


def fold_answer(
    track: Track,
    asked: Change,
    applied: AppliedChange,
    t: float,
    seconds: float,
    life: str | None = None,
) -> Track:
    """The track after the engine's word on a wish, `seconds` after it was asked.

    `life` is the `instance` that was asked. What another one than that of the latest state has
    made says nothing about this one: its versions are others, and it is gone.
    """
    sent, track = track.sent, replace(track, sent=None)
    if _is_over(track, life):
        text = f"{_describe_answer(asked, applied)} · by another start of the engine, not by this"
        return _end_wish(track, asked).add_event(t, text, "warn", kind="change")
    stored = None if track.known is None else _why_stored(track.known, applied)
    done = f"applied in {seconds * 1000:.0f} ms" if stored is None else f"stored: {stored}"
    text = f"{_describe_answer(asked, applied)} · {done}"
    cause = Cause(asked.origin, None, asked.reason or KEY)
    kind: EventKind | None = "trial" if asked.trial_s is not None or asked.cancel else None
    track = track.add_event(t, text, "good", cause=cause, kind=kind)
    for text in applied.notices:
        track = track.add_event(t, text, "warn", kind="change")
    judged = asked.trial_s is not None
    if applied.applied != applied.before and not judged and stored is None:
        track = _mark_answer(track, applied)
    is_undone = sent is not None and sent.is_undone_by(track.want)
    track = replace(_end_wish(track, asked), in_doubt=None)
    undo = track.undo.add(asked, applied, track.in_force)
    track = replace(track, undo=undo.take() if is_undone else undo)
    if track.version is not None and track.version > applied.version:
        return track  # a newer reading came first, with what somebody else changed since
    if judged or asked.cancel:  # what is in force by now is for the next reading to say
        return replace(track, version=applied.version)
    return replace(
        track,
        version=applied.version,
        reading=_patch(track.reading, applied),
        figures=_patch(track.figures, applied),
        known=None if track.known is None else _turn(track.known, applied),
    )


def _is_over(track: Track, life: str | None) -> bool:
    return life is not None and (track.known is None or track.known.instance != life)


def _why_stored(state: EngineState, applied: AppliedChange) -> str | None:
    """Until when nothing comes of a k that was taken; None where it is in force at once.

    >>> from tests.support.engine_state import engine_state
    >>> taken = AppliedChange({"k": 5}, {"k": 6}, version=1, step=9)
    >>> _why_stored(engine_state(mode="target-only"), taken)
    'it takes effect when speculation is back'
    >>> _why_stored(engine_state(), taken)
    """
    # After the first paint: it brings what changes are made with.
    from specdeck.engine.operations.change import describe_wait, find_wait, is_only_k

    waits_for = find_wait(state, applied) if is_only_k(applied) else None
    return None if waits_for is None else describe_wait(waits_for)


def _describe_answer(asked: Change, applied: AppliedChange) -> str:
    if asked.cancel:
        return "the trial is reverted"
    if asked.trial_s is not None:
        tried = knobs_on_trial(asked, applied)
        return f"on trial: {format_changes(applied.before, tried)}"
    knobs = format_changes(applied.before, applied.applied)
    return f"undone, {knobs}" if asked.origin == "undo" else knobs


def _mark_answer(track: Track, applied: AppliedChange) -> Track:
    mode, k = applied.applied.get("mode"), applied.applied.get("k")
    if "policy" in applied.applied:
        track = track.add_mark(applied.applied["policy"])
    if mode is not None:
        track = track.add_mark(short_mode(mode))
    return track if k is None else track.add_mark(f"k{k}")


def _patch(reading: Reading | None, applied: AppliedChange) -> Reading | None:
    """The reading with the engine's newest word in it, until the next one is read."""
    word = None if reading is None else reading.word
    return reading if reading is None or word is None else reading.with_word(_turn(word, applied))


def _turn(state: EngineState, applied: AppliedChange) -> EngineState:
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


def fold_error(
    track: Track,
    error: SpecdeckError,
    t: float,
    asked: Change | None = None,
    life: str | None = None,
) -> Track:
    """The track after a wish that the engine has not fulfilled, or not told of; none is pending.

    `asked` is what was sent to the instance `life`: where that has not refused it, and is the
    engine still, it may be made yet.
    """
    # After the first paint: it brings what changes are made with.
    from specdeck.engine.operations.record import is_refusal

    is_undone = track.sent is not None and track.sent.undo
    track = replace(track, want=None, sent=None, unsent=(), undo=track.undo.restore())
    if not is_refusal(error):
        text = f"not known whether it was changed: {error.line()}"
        text += "; it was not undone" if is_undone else ""
        in_doubt = None if _is_over(track, life) else asked
        return replace(track, in_doubt=in_doubt).add_event(t, text, "bad", kind="change")
    text = f"not changed: {error.line()}"
    if isinstance(error, Conflict):
        # The next reading says what was changed, and brings the version to ask with. Until then
        # whatever is asked meets the same refusal.
        return track.add_event(t, text, "warn", kind="change")
    if isinstance(error, Unauthorized):  # the attached engine lets nothing more through
        text += "; control is read-only again"
    return track.add_event(t, text, "bad", kind="change")
