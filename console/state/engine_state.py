"""What is known of one engine: its readings, and its answers, folded into one value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from specdeck.console.state.tuning import LeftKnobs, SweepRun
from specdeck.console.state.undo import InForce, Sent, UndoHistory
from specdeck.console.widgets.cells import Tone
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.metrics.reading import Presence, Reading
from specdeck.engine.metrics.window import Window, between
from specdeck.engine.protocol.messages import (
    Change,
    EngineState,
    Mode,
    Origin,
)
from specdeck.engine.text import format_changes, format_duration, oneline

if TYPE_CHECKING:
    from specdeck.engine.blackbox.event import EventKind
    from specdeck.engine.metrics.sample import Sample
    from specdeck.engine.protocol.requests import Requests
    from specdeck.engine.protocol.tuning import Tuning

POINTS: Final = 1200
"""Samples kept for the charts; wider terminals do not exist."""
EVENTS: Final = 1000
"""Events kept for the list: those of a night, at a change a minute."""
LONGEST_EVENT: Final = 700
"""Characters of one: an engine's reason has 500. All are laid out anew when another one comes,
which takes minutes where each is as long as a state may be."""

ANOTHER_ENGINE: Final = "another engine answers at this address too: attach to each at its own"
"""An event."""
MINUTE_S: Final = 60.0
"""What is too rare for the seconds between two readings is told of so many."""
REASONS_APART_S: Final = 5.0
"""A policy may move k in every step; its reasons are told no faster than they are read."""

BEHIND_S: Final = 5.0
"""For readings that were under way when an answer came; ranks answer one after the other."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
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
    kind: EventKind = "other"


@dataclass(frozen=True, slots=True)
class Cause:
    """The change of an engine that an event tells of."""

    origin: Origin | None
    """None of a plugin that does not tell."""
    who: str | None = None
    """None where this console made it."""
    reason: str | None = None
    t: float | None = None
    """Unix time by the engine's clock; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in plain words."""

    t: float
    text: str
    tone: Tone = "plain"
    cause: Cause | None = None
    """None where it tells of no change."""
    kind: EventKind = "other"
    """What it is about."""
    times: int = 1
    """How often it was told."""
    first: Event | None = None
    """As it was told the first time; None where it was told once."""

    @property
    def original(self) -> Event:
        """As it was told the first time."""
        return self.first or self


@dataclass(frozen=True, slots=True)
class Said:
    """The latest reason of a policy that was told."""

    t: float
    text: str | None


@dataclass(frozen=True, slots=True)
class FingerprintNames:
    """The names of build, path and behaviour as they were last looked at, beside their pin."""

    build: str
    path: str
    behaviour: str | None = None
    """None while the probe set was not asked of this path."""
    reading: str | None = None
    """How far the engine is with reading its weights; None when it is done."""
    pinned: bool = False
    """Whether there is a pin to differ from."""
    differs: str | None = None
    """The layer that differs from its pin, the lowest one; None when none does."""


@dataclass(frozen=True, slots=True)
class Track:
    """One engine over time, as far as a console needs it."""

    name: str
    url: str
    recorded: bool = False
    """Whether it is a recording, in which nothing runs that could be asked."""
    past: bool = False
    """Whether it is what was known at an earlier moment."""
    reading: Reading | None = None
    """The latest one, whatever it says."""
    figures: Reading | None = None
    """The latest one with a sample: shown muted while the engine is down."""
    known: EngineState | None = None
    """The plugin's last word in this life of the engine, however old."""
    lost: float | None = None
    """Unix time since which the engine answers and its plugin does not."""
    said: Said | None = None
    names: FingerprintNames | None = None
    """Its fingerprint when it was last looked at; None while nobody looked."""
    tuning: Tuning | None = None
    """The plugin's last word on policy, breaker and trial; asked for while somebody looks."""
    tuning_age: float | None = None
    """In the past: seconds from that word to the moment that is shown; None now."""
    untuned: SpecdeckError | None = None
    """Why the last question for it had no answer."""
    requests: Requests | None = None
    """What ran when it was last asked for; asked for while somebody looks."""
    unlisted: SpecdeckError | None = None
    """Why the last question for them had no answer."""
    sweep: SweepRun | None = None
    """This console's latest sweep of it."""
    left: LeftKnobs | None = None
    """What that sweep may have left turned, until it is answered."""
    swept_by: str | None = None
    """Who sweeps it from elsewhere, as an event has told; None once that is over."""
    load: str | None = None
    """The profile of the load that specdeck puts on it; None where it puts none, or nobody
    recorded it."""
    since: float | None = None
    """Unix time at which the engine came up or went away."""
    points: tuple[ChartPoint, ...] = ()
    total: int = 0
    """Readings so far; `points` are the last of them."""
    samples: tuple[Sample, ...] = ()
    """Those of the last minute, in this life of the engine; kept of an engine as it is now."""
    last_minute: Window | None = None
    """The work of the last minute, or of what of it the engine has lived and was looked at."""
    marks: tuple[Mark, ...] = ()
    events: tuple[Event, ...] = ()
    want: Change | None = None
    """What the operator asked for and the engine has not answered yet."""
    sent: Sent | None = None
    """What of that the engine has been sent."""
    unsent: tuple[Change | None, ...] = ()
    """What was wanted before each wish since, the latest last."""
    in_doubt: Change | None = None
    """What this console has asked for last, where the engine has not told whether it made it."""
    version: int | None = None
    """The control version that the next change may expect."""
    behind_since: float | None = None
    """Unix time since which readings tell an older version than an answer has told; or None."""
    proofs_awaited: int = 0
    """Changes that the engine applied and whose proof in its counters is still to come."""
    undo: UndoHistory = field(default_factory=UndoHistory)

    @property
    def up(self) -> bool | None:
        """Whether the engine answered last time; None before the first reading."""
        return None if self.reading is None else self.reading.up

    @property
    def presence(self) -> Presence | None:
        """How the engine was there last time; None before the first reading."""
        return None if self.reading is None else self.reading.presence

    @property
    def state(self) -> EngineState | None:
        """The plugin's latest word; None without one or while the engine is down."""
        return None if self.reading is None else self.reading.state

    @property
    def is_sweeping(self) -> bool:
        """Whether this console sweeps it: k moves all the time then, and that is no news."""
        return self.sweep is not None and self.sweep.ended is None

    @property
    def in_force(self) -> InForce:
        """What its knobs are known to be."""
        return InForce(self.known, self.tuning, self.want)

    def add_event(
        self,
        t: float,
        text: str,
        tone: Tone = "plain",
        *,
        cause: Cause | None = None,
        kind: EventKind | None = None,
    ) -> Track:
        """The same with one more event; without a kind of its own it has its cause's."""
        line = oneline(text)
        if len(line) > LONGEST_EVENT:
            line = f"{line[: LONGEST_EVENT - 1]}…"
        event = Event(t, line, tone, cause, kind or _kind_of(cause))
        return replace(self, events=(*self.events, event)[-EVENTS:])

    def add_refusal(
        self, t: float, text: str, tone: Tone = "warn", *, kind: EventKind = "other"
    ) -> Track:
        """The same with why a key did nothing; the latest event counts it where that says so.

        A key that is held would push all else out of the list.
        """
        told = self.add_event(t, text, tone, kind=kind)
        if not self.events:
            return told
        latest, new = self.events[-1], told.events[-1]
        first = latest.original
        if replace(new, t=first.t) != first:
            return told
        times = latest.times + 1
        counted = f"{first.text} · {times} times"
        again = replace(first, t=t, text=counted, times=times, first=first)
        return replace(self, events=(*self.events[:-1], again))

    def add_mark(self, label: str, kind: EventKind = "change") -> Track:
        """The same with a mark at the latest reading, where the last change wins."""
        at = self.total - 1
        kept = tuple(mark for mark in self.marks if at - POINTS < mark.at < at)
        return replace(self, marks=(*kept, Mark(at, label, kind)))


def _kind_of(cause: Cause | None) -> EventKind:
    """The kind of an event that tells of a change.

    >>> _kind_of(Cause("trial", "ann")), _kind_of(Cause("undo")), _kind_of(None)
    ('trial', 'change', 'other')
    """
    if cause is None:
        return "other"
    by_itself = cause.origin in ("policy", "breaker", "trial", "sweep", "lease")
    return cast("EventKind", cause.origin) if by_itself else "change"


@dataclass(frozen=True, slots=True)
class KnownTrial:
    """Which trial is under way, as far as that is known."""

    owner: str | None = None
    """Who began it."""
    number: int | None = None
    """As the engine counts; None also of a plugin that counts none."""


def find_trial(track: Track) -> KnownTrial | None:
    """The trial that is under way; None without any.

    Whose it is, is for the tuning of the same start of the engine to say. The last change may
    be of before the trial, and so of anybody.
    """
    state = None if track.reading is None else track.reading.word
    tuning = track.tuning
    if state is None or state.trial is None:
        return None
    trial = None if tuning is None or tuning.instance != state.instance else tuning.trial
    if trial is None or trial.over:
        return KnownTrial()
    return KnownTrial(trial.who, trial.number or None)


def fold_reading(track: Track, reading: Reading) -> Track:
    """The track with one more reading, and the events and marks that it makes."""
    before = track
    track, reading = _newest(track, reading)
    window = reading.window
    point = ChartPoint(reading.t)
    if window is not None:
        point = ChartPoint(reading.t, window.tokens_per_second, window.acceptance_rate)
    changed = before.presence != reading.presence
    samples = _last_minute(track, reading)
    track = replace(
        track,
        reading=reading,
        figures=reading if reading.up else track.figures,
        since=reading.t if changed else track.since,
        points=(*track.points, point)[-POINTS:],
        total=track.total + 1,
        samples=samples,
        last_minute=between(samples[0], samples[-1]) if len(samples) > 1 else None,
    )
    track = _presence(before, track, reading)
    if reading.unmeasured is not None:
        return replace(_control(track, reading.unmeasured, reading.t), known=reading.unmeasured)
    if reading.state is None:
        return _silence(track, reading)
    return replace(_control(track, reading.state, reading.t), known=reading.state)


def _last_minute(track: Track, reading: Reading) -> tuple[Sample, ...]:
    """The samples with the reading's own; of its own life alone after a restart."""
    sample = reading.sample
    if sample is None:
        return track.samples
    kept = () if reading.restarted else track.samples
    return (*(one for one in kept if sample.at - one.at <= MINUTE_S), sample)


def _newest(track: Track, reading: Reading) -> tuple[Track, Reading]:
    """The reading, with the state kept that an answer has brought since it was taken.

    No reading is under way for long: an engine that keeps to an older version has told one that
    it never had, and what it tells now is all that there is.
    """
    ours, theirs = None if track.reading is None else track.reading.word, reading.word
    if ours is None or theirs is None or ours.instance != theirs.instance:
        return replace(track, behind_since=None), reading
    if theirs.version >= ours.version:
        return replace(track, behind_since=None), reading
    since = reading.t if track.behind_since is None else track.behind_since
    if reading.t - since < BEHIND_S:
        return replace(track, behind_since=since), reading.with_word(ours)
    text = f"the engine tells version {theirs.version} again, it had told {ours.version}"
    track = replace(track, behind_since=None, version=theirs.version)
    return track.add_event(reading.t, text, "warn", kind="control"), reading


def _presence(before: Track, track: Track, reading: Reading) -> Track:
    if reading.restarted:
        # What was changed, or asked for, in its former life says nothing about this one.
        track = replace(
            track,
            version=None,
            want=None,
            sent=None,
            unsent=(),
            in_doubt=None,
            undo=track.undo.restart(),
            known=None,
            lost=None,
            said=None,
            left=None,
        ).add_mark("restart", "restart")
        if _is_of_another(before, reading):
            return track.add_refusal(reading.t, ANOTHER_ENGINE, kind="restart")
        return track.add_event(reading.t, "the engine was restarted", "warn", kind="restart")
    was, now = before.presence, reading.presence
    if was == now:
        return track
    why = "no answer" if reading.error is None else str(reading.error)
    if now == "down":
        return track.add_mark("down", "down").add_event(reading.t, why, "bad", kind="down")
    gone = format_duration(reading.t - (before.since or reading.t))
    if now == "no figures":
        track = track.add_mark("no figures", "control")
        if was == "down":
            text = f"answers again after {gone}, with no figures: {why}"
            return track.add_event(reading.t, text, "warn", kind="up")
        return track.add_event(reading.t, f"no figures: {why}", "warn", kind="control")
    if was is None:
        return track
    if was == "no figures":
        track = track.add_mark("figures", "control")
        text = f"figures are back after {gone}"
        return track.add_event(reading.t, text, "good", kind="control")
    text = f"answers again after {gone}"
    return track.add_mark("up", "up").add_event(reading.t, text, "good", kind="up")


def _is_of_another(before: Track, reading: Reading) -> bool:
    """Whether the life that answers had begun while the one before it still answered."""
    word = reading.word
    if word is None or before.known is None or before.figures is None:
        return False
    return word.instance != before.known.instance and word.is_older_than(before.figures.t)


def _silence(track: Track, reading: Reading) -> Track:
    """The track after a reading without a state: says so once, if there was one before."""
    if track.known is None or not reading.up or track.lost is not None:
        return track
    error = reading.control_error
    why = "the plugin does not answer" if error is None else error.line()
    said = track.add_event(reading.t, f"no control: {why}", "warn", kind="control")
    return replace(said, lost=reading.t)


def _control(track: Track, state: EngineState, t: float) -> Track:
    """The track after a newer state, compared with the last one that was known."""
    if track.lost is not None:
        gone = format_duration(t - track.lost)
        said = f"control is back after {gone}"
        track = replace(track.add_event(t, said, "good", kind="control"), lost=None)
    old = track.known
    if old is None or old.instance != state.instance:
        reason = Said(t, state.policy_reason)
        return replace(
            track, version=state.version, said=reason, swept_by=None, in_doubt=None, left=None
        )
    if state.trial is not None or old.trial is not None:
        track = _mark_trial(track, old, state)
    elif not _is_swept(state) and not track.is_sweeping:
        track = _mark_turned(track, old, state)
    track = _alarm(_breaker(track, old, state, t), old, state, t)
    track = _answer_left(_end_sweep(track, state, t), state, t)
    if track.version is None or state.version > track.version:
        track = replace(track, version=state.version)
        ours = _take_ours(track, old, state, t)
        # What was asked at the version before is refused at this one.
        track = replace(ours or _by_others(track, old, state, t), in_doubt=None)
    return _reason(track, state, t)


def _mark_trial(track: Track, old: EngineState, state: EngineState) -> Track:
    """Marks where a trial begins and ends; its turns in between are no changes."""
    if (old.trial is None) == (state.trial is None):
        return track
    return track.add_mark("trial" if old.trial is None else "trial end", "trial")


def _mark_turned(track: Track, old: EngineState, state: EngineState) -> Track:
    """Marks what was set; the k's that a policy chooses are no knob."""
    if old.mode != state.mode:
        track = track.add_mark(short_mode(state.mode))
    if old.policy != state.policy:
        track = track.add_mark(state.policy)
    return track if old.k_set == state.k_set else track.add_mark(f"k{state.k_set}")


def _breaker(track: Track, old: EngineState, state: EngineState, t: float) -> Track:
    if old.breaker == state.breaker:
        return track
    # The reason is part of this event, and none of its own.
    track = replace(track, said=Said(t, state.policy_reason))
    if state.breaker == "closed":
        text = f"breaker closed, was {old.breaker}"
        track = track.add_mark("breaker closed", "breaker")
        return track.add_event(t, text, "good", cause=Cause("breaker", "breaker"))
    if old.breaker == "closed":
        track = track.add_mark("breaker open", "breaker")
    if old.breaker == "closed" or state.breaker == "open":
        why = f": {state.policy_reason}" if state.policy_reason else f", was {old.breaker}"
        track = track.add_event(t, f"breaker open{why}", "bad", cause=Cause("breaker", "breaker"))
    if state.breaker == "half-open":
        text = "breaker half-open: it tries whether drafts pay again"
        track = track.add_event(t, text, "warn", kind="breaker")
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
    cause = Cause("policy", "policy", state.policy_reason)
    return track.add_event(t, f"{state.policy}: {state.policy_reason}", cause=cause)


def short_mode(mode: Mode) -> str:
    """A mode in a mark on the time axis."""
    return "target" if mode == "target-only" else "spec"


def _alarm(track: Track, old: EngineState, state: EngineState, t: float) -> Track:
    """Acceptance that is too good: streams that repeat themselves.

    Told once, when it begins: the engine's words of it count the windows since.
    """
    if state.alarm is None or old.alarm is not None:
        return track
    return track.add_event(t, f"alarm: {state.alarm}", "bad", kind="alert")


def _is_swept(state: EngineState) -> bool:
    """Whether the last change was one of a sweep's many."""
    change = state.last_change
    return change is not None and change.origin == "sweep"


def _is_under_sweep(state: EngineState) -> bool:
    """Whether a sweep has the engine, under a lease that it renews."""
    return state.lease is not None and _is_swept(state)


def _end_sweep(track: Track, state: EngineState, t: float) -> Track:
    """Says that a sweep from elsewhere has given the engine back, or lost its lease of it."""
    if track.swept_by is None or _is_under_sweep(state):
        return track
    said = f"{track.swept_by}'s sweep is over"
    return replace(track, swept_by=None).add_event(t, said, "accent", kind="sweep")


def _answer_left(track: Track, state: EngineState, t: float) -> Track:
    """Lets go of what a sweep left turned, once it is back or somebody has seen to it."""
    if track.left is None or track.is_sweeping:
        return track
    answer = track.left.find_answer(state)
    if answer is None:
        return track
    return replace(track, left=None).add_event(t, answer, "accent", kind="sweep")


def _take_ours(track: Track, old: EngineState, state: EngineState, t: float) -> Track | None:
    """The track with a change of this console that was made late; None of anybody else's."""
    asked, last = track.in_doubt, state.last_change
    if asked is None or last is None:
        return None
    # After the first paint: it brings what changes are made with.
    from specdeck.engine.operations.change import as_applied, is_made

    if not is_made(asked, old.version, state):
        return None
    made = as_applied(last, asked, state)
    said = f"{format_changes(made.before, made.applied)}: made late, as asked for here"
    cause = Cause(asked.origin, None, asked.reason, last.t)
    track = replace(track, undo=track.undo.add(asked, made, track.in_force))
    return track.add_event(t, said, "warn", cause=cause)


def _by_others(track: Track, old: EngineState, state: EngineState, t: float) -> Track:
    """Says who turned a knob that this console did not turn."""
    change = state.last_change
    if track.is_sweeping:
        return track
    if change is not None and _is_swept(state):
        if _is_under_sweep(old) or (_is_swept(old) and not _is_under_sweep(state)):
            return track
        began = _is_under_sweep(state)
        track = replace(track, swept_by=change.who if began else None)
        said = f"{change.who} {'sweeps' if began else 'swept'} k"
        return track.add_event(t, said, "accent", kind="sweep")
    if change is None:
        return track
    knobs = format_changes(change.before, change.after, moved_only=True)
    if not knobs:
        return track
    reason = f" ({change.reason})" if change.reason else ""
    cause = Cause(change.origin, change.who, change.reason, change.t)
    said = f"{change.who} changed {knobs}{reason}"
    if change.origin == "trial":
        said = f"{change.who} tries {knobs}" if state.trial else f"trial over: {knobs}{reason}"
    return track.add_event(t, said, "accent", cause=cause)
