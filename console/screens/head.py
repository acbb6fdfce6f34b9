"""What stands at the top of an engine's screens: who it is, its k, what is out of order; pure."""

from __future__ import annotations

from dataclasses import replace

from specdeck.console.state.engine_state import FingerprintNames, Track
from specdeck.console.state.pending import k_wanted, mode_wanted, policy_wanted
from specdeck.console.widgets.cells import (
    BLANK,
    Cell,
    Cells,
    Row,
    Tone,
    fade,
    fade_row,
    join_cells,
)
from specdeck.console.widgets.format import KeyLabel, LocalTime, at, percent
from specdeck.console.widgets.text import measure
from specdeck.engine.metrics.reading import Presence, Reading
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.text import format_duration, oneline

AUTO = "auto"
"""Asked for where a policy chooses k."""

_LIGHT: dict[Presence | None, Cell] = {
    "up": Cell("● up", "good"),
    "no figures": Cell("● no figures", "warn"),
    "down": Cell("● down", "bad"),
    None: Cell("○ connecting", "muted"),
}


def title(track: Track, *, armed: bool) -> Row:
    """Engine, model and method; up or down; armed or read-only, of an engine as it is now."""
    left = (Cell(" specdeck  ", "accent"), *_identity(track))
    light, drift = _light(track), _badge(track.names)
    if track.past:
        return Row(left, (light, Cell(" ")))
    right = (*drift, light, Cell("  "), _control_light(armed), Cell(" "))
    # The wait for CPUs goes first, and the engine's name and its light stay.
    shorter = (right, (*drift, light, Cell(" ")), (light, Cell(" ")), (light,))
    return Row(left, (*_wait(track), *right), shorter=shorter, kept=2)


def _light(track: Track) -> Cell:
    if track.past and track.up is None:
        return Cell("○ unknown", "muted")
    return _LIGHT[track.presence]


_MUCH_WAITING = 0.2
"""Of a minute, without a CPU: one that shares two cores with its own API server waits 13 %."""


def _wait(track: Track) -> Cells:
    """What stands there while the engine's threads wait for CPUs that other work has."""
    share = None if track.last_minute is None else track.last_minute.cpu_waiting
    if share is None or share < _MUCH_WAITING or not track.up:
        return ()
    return (Cell(f"CPU wait {percent(share)}", "warn", "app.open_screen('why')"), Cell("  "))


def _badge(found: FingerprintNames | None) -> Cells:
    """What stands beside up and armed while a name differs from its pin.

    >>> _badge(FingerprintNames("b", "p", pinned=True, differs="path"))[0].text
    '≠ pin: path'
    """
    if found is None or found.differs is None:
        return ()
    return (Cell(f"≠ pin: {found.differs}", "bad", "app.open_screen('fingerprint')"), Cell("  "))


def _control_light(armed: bool) -> Cell:
    return Cell("armed", "warn") if armed else Cell("read-only", "muted")


def _identity(track: Track) -> Cells:
    cells = [Cell(track.name, "strong")]
    address = track.url.removeprefix("http://")
    if address != track.name:
        cells.append(Cell(address, "muted"))
    figures = track.figures
    state = track.known
    sample = None if figures is None else figures.sample
    model = state.model if state else sample.model if sample else None
    if model and model != track.name:
        cells.append(Cell(model))
    if state is not None:
        tone: Tone = "muted" if track.up and track.state is None else "plain"
        cells.append(Cell(state.method or "no speculation", tone))
    return join_cells(tuple(cells))


def strip(tracks: tuple[Track, ...], selected: int, key_label: KeyLabel, width: int) -> Row:
    """All engines on one line, each with its state; empty when there is one only.

    Where they are too many for `width`, the selected one and those beside it, and how many of all
    do not answer.
    """
    if len(tracks) < 2:
        return Row()
    each = [_place(index, track, index == selected) for index, track in enumerate(tracks)]
    hint: Cells = (Cell(f"{key_label('engine.next')} next ", "muted"),)
    if 1 + measure(cell for cells in each for cell in cells) + measure(hint) < width:
        return Row((Cell(" "), *(cell for cells in each for cell in cells)), hint)
    down = sum(track.presence == "down" for track in tracks)
    told = (Cell(f"{down} of {len(tracks)} down  ", "bad"),) if down else ()
    room = width - measure((*told, *hint)) - len("‹00  00› ")
    first, last = _find_shown([measure(cells) for cells in each], selected, room)
    left: list[Cell] = [Cell(f"‹{first} " if first else " ", "muted")]
    left += [cell for cells in each[first : last + 1] for cell in cells]
    if behind := len(tracks) - 1 - last:
        left.append(Cell(f"{behind}›", "muted"))
    return Row(tuple(left), (*told, *hint), shorter=(told, ()))


def _place(index: int, track: Track, is_selected: bool) -> Cells:
    """An engine's light and name in the strip."""
    light, drifted = _light(track), track.names is not None and track.names.differs is not None
    name = f"[{track.name}]" if is_selected else f" {track.name} "
    tone: Tone = "strong" if is_selected else "muted"
    badge = Cell("≠ ", "bad") if drifted else Cell(" ")
    return (
        Cell(light.text[0], light.tone),
        Cell(name, tone, f"screen.select({index})"),
        badge,
    )


def _find_shown(lengths: list[int], selected: int, room: int) -> tuple[int, int]:
    """The first and the last that have room with the selected one, as many on both sides of it.

    >>> _find_shown([10] * 9, 4, 35), _find_shown([10] * 9, 0, 35), _find_shown([10] * 9, 8, 35)
    ((3, 5), (0, 2), (6, 8))
    """
    first = last = selected
    used = lengths[selected]
    for away in range(1, len(lengths)):
        for near in (selected + away, selected - away):
            if near not in (first - 1, last + 1) or not 0 <= near < len(lengths):
                continue
            if used + lengths[near] <= room:
                used += lengths[near]
                first, last = min(first, near), max(last, near)
    return first, last


def control(track: Track) -> Row:
    """k as it was asked for, as the engine applies it, and as the counters show it."""
    if track.up is False and track.figures is not None:
        return fade_row(control(replace(track, reading=track.figures)))
    cells = [Cell(" k ", "strong")]
    if track.known is not None:
        told = _requested_and_applied(track, track.known)
        cells += told if track.state is not None else fade(told)
    cells += [Cell(" observed ", "muted"), observed_k(track)]
    k_max = k_max_of(track)
    cells += [Cell("  of ", "muted"), Cell(str(k_max)) if k_max is not None else BLANK]
    right, *shorter = _modes(track)
    return Row(tuple(cells), right, shorter=tuple(shorter))


def _requested_and_applied(track: Track, state: EngineState) -> Cells:
    """What was asked for and what the engine applies; a policy asks for what it likes."""
    wanted = _requested_k(track)
    agreed = wanted in (str(state.k), AUTO)
    return (
        Cell(" requested ", "muted"),
        Cell(wanted, "strong" if agreed else "accent"),
        Cell(" · applied ", "muted"),
        Cell(str(state.k), "strong" if agreed else "warn"),
        Cell(" ·", "muted"),
    )


def _requested_k(track: Track) -> str:
    if mode_wanted(track) == "target-only":
        return "0"
    return str(k_wanted(track)) if policy_wanted(track) == "fixed" else AUTO


def brief_control(track: Track) -> Row:
    """The same for a narrow screen: requested, applied and observed k, and what is out of the
    ordinary, or the mode."""
    state = track.known
    tone: Tone = "muted" if track.state is None else "strong"
    told = () if state is None else (Cell(_requested_k(track), tone), Cell(str(state.k), tone))
    left = (Cell(" k ", "strong"), *join_cells((*told, observed_k(track))))
    if state is None:
        return Row(left)
    right, *shorter = _modes(track, _BRIEF)
    return Row(left, right, shorter=tuple(shorter))


def observed_k(track: Track) -> Cell:
    """Drafted tokens per draft in the latest window: what the engine really does.

    Muted while the latest change is unproven: the window may lie across it.
    """
    window = None if track.reading is None else track.reading.window
    state = track.state
    if window is None:
        return BLANK
    seen = window.observed_k
    if seen is None:
        return BLANK
    # Tokens without drafts are a proof as well: nothing is drafted.
    is_none = window.drafts == 0
    fits = state is None or (state.k == 0 if is_none else seen <= state.k + 0.05)
    tone: Tone = "muted" if track.proofs_awaited else "good" if fits else "warn"
    return Cell(f"{seen:.1f}", tone)


def k_max_of(track: Track) -> int | None:
    """num_speculative_tokens, from whoever knows it."""
    figures = track.figures
    if figures is None:
        return None
    if track.known is not None:
        return track.known.k_max
    return None if figures.sample is None else figures.sample.k_max


_BRIEF = 2
"""The first line without the way back and a policy that chooses nothing."""


def _modes(track: Track, first: int = 0) -> tuple[Cells, ...]:
    """Mode, policy and what is out of the ordinary, the longest first, the last one empty.

    Lines before `first` are left out.
    """
    state = track.known
    if state is None:
        return ((Cell("mode ", "muted"), BLANK, Cell(" ")), ())
    mode, back, policy, breaker, lease = _mode(track, state)
    policies = policy if policy_wanted(track) != "fixed" else ()
    name = tuple(replace(cell, text=cell.text.removeprefix("policy ")) for cell in policies)
    shortest = (*name, *breaker) or mode
    choices = (
        (*mode, *back, *policy, *breaker, *lease),
        (*mode, *back, *policies, *breaker, *lease),
        (*mode, *policies, *breaker, *lease),
        (*mode, *name, *breaker),
        shortest,
        breaker or shortest,
    )
    lines = tuple((*join_cells(cells), Cell(" ")) for cells in dict.fromkeys(choices[first:]))
    shown = lines if track.state is not None else tuple(map(fade, lines))
    return (*shown, ())


def _mode(track: Track, state: EngineState) -> tuple[Cells, ...]:
    """Mode, the way back, policy, breaker and lease; an empty line where there is none."""
    wanted, policy = mode_wanted(track) or state.mode, policy_wanted(track) or state.policy
    tone: Tone = "accent" if wanted == "target-only" else "good"
    back = f"{state.fallback}, back to k {state.k_set}"
    return (
        (Cell(wanted, tone if wanted == state.mode else "warn"),),
        (Cell(back, "muted"),) if wanted == "target-only" else (),
        (Cell(f"policy {policy}", "plain" if policy == state.policy else "warn"),),
        (Cell(f"breaker {state.breaker}", "bad"),) if state.breaker != "closed" else (),
        _trial_or_lease(track, state),
    )


def _trial_or_lease(track: Track, state: EngineState) -> Cells:
    """The trial under way with its countdown, or the lease."""
    trial = None if track.tuning is None else track.tuning.trial
    if state.trial is not None:
        # What is told now and then counts down, and of another moment says nothing.
        counts = trial is not None and not trial.over and not track.past
        left = trial.seconds_left if trial is not None and counts else None
        text = f"trial, {format_duration(left)} to go" if left is not None else "trial"
        return (Cell(text, "accent"),)
    if state.lease is None:
        return ()
    return (Cell(f"lease {format_duration(state.lease.seconds_left)}", "warn"),)


def notice(track: Track, local: LocalTime) -> tuple[Row, ...]:
    """What is out of order, and what to do about it; no row when all is well."""
    return (*_out_of_reach(track, local), *_left(track))


def _left(track: Track) -> tuple[Row, ...]:
    """What a sweep may have left turned, and the command that takes it back."""
    left = track.left
    if left is None or track.past:
        return ()
    back = f"`{left.undo}`" if left.undo else None
    return _trouble(Row((Cell(f" sweep: {left.text}", "bad"),)), back)


def _out_of_reach(track: Track, local: LocalTime) -> tuple[Row, ...]:
    """Why the engine or its plugin does not answer."""
    reading = track.reading
    if reading is None and track.past:
        return (Row((Cell(" nothing is known of this moment: it was not recorded", "warn"),)),)
    if reading is None:
        return (Row((Cell(" waiting for the first answer", "muted"),)),)
    if not reading.up:
        return _down(track, reading, local)
    error = reading.control_error
    if error is None:
        return ()
    return _trouble(Row((Cell(f" no control: {oneline(str(error))}", "warn"),)), error.remedy)


def _down(track: Track, reading: Reading, local: LocalTime) -> tuple[Row, ...]:
    error = reading.error
    if track.past:
        why = "no answer" if error is None else oneline(str(error))
        return (Row((Cell(" down at this moment: ", "bad"), Cell(why))),)
    since = track.since if track.since is not None else reading.t
    why = "no answer" if error is None else oneline(str(error))
    remedy = (error.remedy if error else None) or "specdeck keeps asking"
    if reading.presence == "no figures":
        remedy = "it answers and can be steered; no change is observed"
    gone = format_duration(reading.t - since)
    down = Cell(f" {reading.presence} since {at(since, local)} ({gone}) ", "bad")
    return _trouble(Row((down, Cell(f" {why}"))), remedy)


def _trouble(what: Row, remedy: str | None) -> tuple[Row, ...]:
    return (what, Row((Cell(f" → {remedy}", "muted"),))) if remedy else (what,)
