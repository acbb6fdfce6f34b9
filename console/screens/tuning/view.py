"""Policy, breaker, trials, sweeps and the ledger in words: pure, no Textual."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from specdeck.console.screens.tuning.curve import MeasuredPoint, SweepCurve
from specdeck.console.state.engine_state import Event, Track
from specdeck.console.state.tuning import SweepRun, describe_end, describe_optimum, describe_trial
from specdeck.console.state.undo import KEY
from specdeck.console.widgets.cells import Cell, Row, Tone
from specdeck.console.widgets.format import KeyLabel, LocalTime, at, number
from specdeck.engine.errors import Unsupported
from specdeck.engine.protocol.full_graphs import describe_reach
from specdeck.engine.protocol.tuning import (
    BreakerTuning,
    Exact,
    HardBaseline,
    KChange,
    LedgerTuning,
    Parameter,
    SavedTime,
    Tuning,
)
from specdeck.engine.text import format_duration, oneline

if TYPE_CHECKING:
    from specdeck.engine.blackbox.event import EventKind
    from specdeck.engine.sweep.runner import SweepProgress


_LABEL = 9
_SAME_S = 5.0
"""Seconds that an answer, and two clocks, may set apart what is one change."""
_FRESH_S = 5.0
"""What was recorded so shortly before a moment is that moment's."""
_MOVES_NOTHING: frozenset[EventKind] = frozenset(
    ("down", "up", "control", "drift", "alert", "check", "load")
)
"""Kinds of events that are in the list of events alone."""
_TONES: dict[str, Tone] = {"closed": "good", "half-open": "warn", "open": "bad"}
_OLD = "this engine's plugin does not report its tuning"
_OLD_REMEDY = "update specdeck where the engine runs, and restart it"


def status(track: Track, key_label: KeyLabel) -> tuple[Row, ...]:
    """Policy, breaker, trial, ledger, exact traffic, and what was set; one thing a row."""
    tuning = track.tuning
    if tuning is None:
        return explain_silence(track)
    breaker = tuning.breaker
    told = breaker_line(breaker, reset=key_label("breaker.toggle"))
    rows = [_policy(tuning), *_graphs(track), _fact("breaker", told, _TONES[breaker.state])]
    if breaker.alarm:
        rows.append(_fact("alarm", oneline(breaker.alarm), "bad"))
    if tuning.trial is not None:
        rows.append(_fact("trial", *describe_trial(tuning.trial)))
    rows.append(_fact("saved", *_ledger(tuning.ledger)))
    if tuning.reason and tuning.reason != KEY:
        rows.append(_fact("why", oneline(tuning.reason)))
    if breaker.evidence:
        rows.append(_fact("evidence", oneline(breaker.evidence)))
    rows.append(_fact("baseline", *describe_baseline(tuning.baseline)))
    if tuning.resting:
        noun = "request drafts" if tuning.resting == 1 else "requests draft"
        rows.append(_fact("resting", f"{tuning.resting} {noun} nothing: they accepted nothing"))
    if tuning.exact.models or tuning.exact.requests:
        rows.append(_fact("exact", exact_line(tuning.exact)))
    if moved := [_format_moved(one) for one in tuning.parameters if one.value != one.default]:
        rows.append(_fact("set", ", ".join(moved), "accent"))
    return tuple(rows)


def tell_age(track: Track) -> tuple[Row, ...]:
    """How long before the moment that is shown parameters, trial and curve were recorded; no row
    where that is a few seconds, and of an engine as it is now.

    >>> tell_age(Track("demo", "http://x", past=True, tuning_age=200.0))[0].left[0].text
    ' parameters, trial and measured speeds as recorded 3 min 20 s earlier'
    >>> tell_age(Track("demo", "http://x"))
    ()
    """
    if track.tuning_age is None or track.tuning_age < _FRESH_S:
        return ()
    age = format_duration(track.tuning_age)
    text = f" parameters, trial and measured speeds as recorded {age} earlier"
    return (Row((Cell(text, "warn"),)),)


def explain_silence(track: Track) -> tuple[Row, ...]:
    """Why there is nothing to tell, and what to do about it."""
    if track.past:
        return (_row(Cell("not recorded of this moment", "muted")),)
    if track.recorded:
        return (_row(Cell("this is a recording: there is no engine to ask", "warn")),)
    error = track.untuned or (track.reading.control_error if track.reading else None)
    if error is None:
        return (_row(Cell("asking the engine", "muted")),)
    text, remedy = oneline(str(error)), error.remedy
    if track.state is not None and isinstance(error, Unsupported):
        # The other routes answer: only this one is not there.
        text, remedy = _OLD, _OLD_REMEDY
    rows = [_row(Cell(text, "warn"))]
    return (*rows, _row(Cell(f"→ {remedy}", "muted"))) if remedy else tuple(rows)


def _row(*cells: Cell) -> Row:
    return Row((Cell(" "), *cells))


def _fact(label: str, text: str, tone: Tone = "plain") -> Row:
    """A label and what there is to say; wrapped under itself where it is long."""
    return Row((Cell(f" {label:<{_LABEL}}", "muted"), Cell(text, tone)))


def _graphs(track: Track) -> Iterator[Row]:
    """How far full CUDA graphs reach at the k in force, where there are any."""
    state = track.state
    if state is not None and state.k < len(state.full_graphs):
        reach = state.full_graphs[state.k]
        beyond = state.running > reach.requests
        yield _fact("graphs", describe_reach(reach, state.k), "warn" if beyond else "plain")


def _policy(tuning: Tuning) -> Row:
    chosen = " · ".join(
        f"k {k} at {first}" if first == last else f"k {k} at {first}-{last}"
        for first, last, k in tuning.k
    )
    return _fact("policy", f"{tuning.policy}: {chosen}" if chosen else tuning.policy)


def breaker_line(breaker: BreakerTuning, *, reset: str) -> str:
    """The breaker on one line; `reset` is the key that resets it.

    >>> lost = BreakerTuning("open", True, "loses 8 %", since_s=12.0, next_probe_s=3.4)
    >>> breaker_line(lost, reset="b")
    'open for 12 s: loses 8 %; next probe in 3 s'
    >>> held = BreakerTuning("open", True, "by hand", held=True, by="ann", since_s=70.0)
    >>> breaker_line(held, reset="b")
    'open for 1 min 10 s: by hand; held by ann until it is reset (b)'
    >>> breaker_line(BreakerTuning("closed", False), reset="b")
    'closed; opens by hand only'
    """
    parts: list[str] = [breaker.state]
    if breaker.state != "closed":
        parts[0] += f" for {format_duration(breaker.since_s)}"
        if breaker.reason:
            parts[0] += f": {oneline(breaker.reason)}"
    if breaker.held:
        by = f" by {breaker.by}" if breaker.by else ""
        parts.append(f"held{by} until it is reset ({reset})")
    elif breaker.next_probe_s is not None:
        parts.append(f"next probe in {format_duration(breaker.next_probe_s)}")
    if breaker.state == "closed":
        if not breaker.automatic:
            parts.append("opens by hand only")
        if breaker.opened:
            last = f", last: {oneline(breaker.reason)}" if breaker.reason else ""
            parts.append(f"opened {breaker.opened}×{last}")
    return "; ".join(parts)


def _ledger(ledger: LedgerTuning) -> tuple[str, Tone]:
    known = [each for each in (ledger.hour, ledger.day) if each is not None]
    if not known:
        return "not known yet: target-only was not measured beside it", "muted"
    tone: Tone = "good" if known[0].saved_s >= 0 else "bad"
    against = "soft k = 0" if ledger.against == "soft" else "no speculation"
    hour, day = format_saved(ledger.hour), format_saved(ledger.day)
    told = f"{hour} this hour and day" if hour == day else f"{hour} this hour · {day} this day"
    return f"{told}, against {against}", tone


def describe_baseline(found: HardBaseline) -> tuple[str, Tone]:
    """What savings are told against, and how that was found.

    >>> print(describe_baseline(HardBaseline())[0])
    soft k = 0; `specdeck sweep --hard` measures no speculation
    >>> print(describe_baseline(HardBaseline(0.071, 812.4, -0.03))[0])
    soft k = 0 takes 7.1 % longer than no speculation, of which ~812 tokens/s are expected; \
-3 % against it lately
    """
    if found.soft_cost is None:
        return "soft k = 0; `specdeck sweep --hard` measures no speculation", "muted"
    than = "longer" if found.soft_cost > 0 else "shorter"
    text = f"soft k = 0 takes {abs(found.soft_cost) * 100:.1f} % {than} than no speculation"
    if found.tokens_per_second is not None:
        text += f", of which ~{number(found.tokens_per_second)} tokens/s are expected"
    if found.gain is None:
        return text, "plain"
    tone: Tone = "bad" if found.gain < 0 else "plain"
    return f"{text}; {found.gain * 100:+.0f} % against it lately", tone


def format_saved(found: SavedTime | None) -> str:
    """Engine time saved or lost, and the share of the time that could be compared.

    >>> lost = SavedTime(-4.2, 100.0)
    >>> format_saved(SavedTime(312.0, 1200.0)), format_saved(lost), format_saved(None)
    ('5 min 12 s saved (+26 %)', '4 s lost (-4 %)', '–')
    """
    if found is None:
        return "–"
    word = "saved" if found.saved_s >= 0 else "lost"
    share = "" if found.gain is None else f" ({found.gain:+.0%})"
    return f"{format_duration(abs(found.saved_s))} {word}{share.replace('%', ' %')}"


def exact_line(exact: Exact) -> str:
    """Traffic that is answered target-only.

    >>> exact_line(Exact(("nexus-exact",), 120, 8100, 2))
    '2 running, 120 requests, 8100 tokens without drafts: nexus-exact'
    """
    names = ", ".join(exact.models) or "no model by name"
    tokens = number(float(exact.tokens)) if exact.tokens else "0"
    running = f"{exact.running} running, {exact.requests} requests"
    return f"{running}, {tokens} tokens without drafts: {names}"


def _format_moved(one: Parameter) -> str:
    return f"{one.name} {format_value(one.value)} (was {format_value(one.default)})"


def format_value(found: object) -> str:
    """A parameter's value.

    >>> format_value(0.015), format_value(None), format_value(True), format_value(8)
    ('0.015', 'none', 'yes', '8')
    """
    if found is None:
        return "none"
    if isinstance(found, bool):
        return "yes" if found else "no"
    return f"{found:g}" if isinstance(found, float) else str(found)


def feed(track: Track, local: LocalTime, who: str, most: int = 40) -> tuple[Row, ...]:
    """What moved k and why, and what keys were answered; the newest first.

    What an engine does or says of itself moves no k: the list of events has it.
    `who` is this console's name with the engine: a change of its own is told once.
    """
    changes = () if track.tuning is None else _merge_sweeps(track.tuning.changes)
    events = [
        event
        for event in track.events
        if event.kind not in _MOVES_NOTHING and not _is_listed(event, changes)
    ]
    every = [*map(_event, _list_others(changes, events, who)), *events]
    every.sort(key=lambda event: -event.t)
    if not every:
        return (_row(Cell("k has not changed yet", "muted")),)
    return tuple(_line(event, local) for event in every[:most])


def _is_listed(event: Event, changes: Iterable[KChange]) -> bool:
    """Whether the engine's own list of changes has what an event tells of."""
    cause = event.cause
    if cause is None or cause.who is None:
        return False
    if cause.origin == "policy":  # it chooses again and again, for the same reason
        return any((one.origin, one.reason) == ("policy", cause.reason) for one in changes)
    at = event.t if cause.t is None else cause.t
    return any(one.who == cause.who and abs(one.t - at) <= _SAME_S for one in changes)


def _list_others(
    changes: tuple[KChange, ...], events: Iterable[Event], who: str
) -> tuple[KChange, ...]:
    """The changes without those of this console: their events say more."""
    left = list(changes)
    for event in events:
        cause = event.cause
        if cause is None or cause.who is not None:
            continue
        same = [one for one in left if one.who == who and abs(one.t - event.t) <= _SAME_S]
        if same:
            # Somebody of the same name may have changed it from elsewhere, for another reason.
            left.remove(min(same, key=lambda one: (one.reason != cause.reason, one.t)))
    return tuple(left)


def _merge_sweeps(changes: tuple[KChange, ...]) -> tuple[KChange, ...]:
    """The moves of k, those of one sweep as one."""
    found: list[KChange] = []
    for change in changes:
        swept = change.origin == "sweep"
        if swept and found and found[-1].origin == "sweep":
            change = replace(change, before=found.pop().before)
        found.append(change)
    return tuple(found)


_BY_HAND: Final = ("operator", "undo")


def _event(change: KChange) -> Event:
    reason = oneline(change.reason)
    stays = change.before == change.after
    moved = f"k stays {change.after}" if stays else f"k {change.before} → {change.after}"
    # The reason of a key that is pressed under an open breaker does not tell what came of it.
    says_it = change.origin == "policy" or (stays and change.origin not in _BY_HAND)
    text = reason if says_it else f"{moved}: {reason}"
    tone: Tone = "bad" if change.origin == "breaker" else "plain"
    known = change.origin in ("policy", "breaker")
    return Event(change.t, text if known else f"{change.who}: {text}", tone)


def _line(event: Event, local: LocalTime) -> Row:
    return Row((Cell(f" {at(event.t, local)}  ", "muted"), Cell(event.text, event.tone)))


def sweep_curve(run: SweepRun | None, local: LocalTime, key_label: KeyLabel) -> SweepCurve | None:
    """What the curve shows of it; None where it measured nothing and has ended."""
    if run is None:
        return None
    analysis = None if run.outcome is None else run.outcome.analysis
    if run.ended is not None and (analysis is None or not analysis.curve):
        return None
    points = {
        point.k: MeasuredPoint(
            point.tokens_per_second.value, point.seconds_per_token.value * 1e3,
            point.tokens_per_second.low, point.tokens_per_second.high,
        )
        for point in (analysis.curve if analysis else ())
    }  # fmt: skip
    best = analysis.optimum if analysis else None
    title = "sweep under way" if run.ended is None else f"sweep of {at(run.ended, local)}"
    return SweepCurve(
        points,
        analysis.batch if analysis else None,
        analysis.best_k if analysis else None,
        best.tied if best else (),
        title,
        _sweep_note(run, stop=key_label("sweep.toggle")),
    )


def _sweep_note(run: SweepRun, *, stop: str) -> Row:
    """How far it is and the key that stops it, or the verdict."""
    if run.ended is None:
        under_way = (Cell(f" {sweep_status(run.progress)}", "accent"),)
        return Row(under_way, (Cell(f"{stop} stops it ", "muted"),))
    if run.stopped is not None or run.outcome is None:
        return Row((Cell(f" {describe_end(run)}", "warn"),))
    return Row((Cell(f" {describe_optimum(run.outcome.analysis)}", "good"),))


def sweep_status(progress: SweepProgress | None) -> str:
    """How far it is.

    >>> from specdeck.engine.sweep.runner import SweepProgress
    >>> sweep_status(SweepProgress(12, 54, 3, 42.0)), sweep_status(SweepProgress(0, 54, None, 65.0))
    ('sweep: 12 of 54 visits, k 3, 42 s left', 'sweep: waiting for traffic')
    """
    if progress is None or (progress.k is None and not progress.done):
        return "sweep: waiting for traffic"
    where = "" if progress.k is None else f", k {progress.k}"
    left = format_duration(progress.seconds_left)
    return f"sweep: {progress.done} of {progress.of} visits{where}, {left} left"
