"""The lines around the charts: which engine, what it is told, what is wrong."""

from __future__ import annotations

from dataclasses import replace

from specdeck.console.view.cell import BLANK, Cell, Line, Row, Tone, faded_row, joined
from specdeck.console.view.track import Track
from specdeck.console.view.words import LocalTime, at, duration, oneline
from specdeck.engine.metrics.reading import Reading

_LIGHT: dict[bool | None, Cell] = {
    True: Cell("● up", "good"),
    False: Cell("● down", "bad"),
    None: Cell("○ connecting", "muted"),
}


def title(track: Track, *, armed: bool) -> Row:
    """Engine, model and method; up or down; armed or read-only."""
    right = (_LIGHT[track.up], Cell("  "), _armed(armed), Cell(" "))
    return Row((Cell(" specdeck  ", "accent"), *_identity(track)), right)


def _armed(armed: bool) -> Cell:
    return Cell("armed", "warn") if armed else Cell("read-only", "muted")


def _identity(track: Track) -> Line:
    cells = [Cell(track.name, "strong")]
    address = track.url.removeprefix("http://")
    if address != track.name:
        cells.append(Cell(address, "muted"))
    figures = track.figures
    state = None if figures is None else figures.state
    sample = None if figures is None else figures.sample
    model = state.model if state else sample.model if sample else None
    if model and model != track.name:
        cells.append(Cell(model))
    if state is not None:
        cells.append(Cell(state.method or "no speculation"))
    return joined(tuple(cells))


def strip(tracks: tuple[Track, ...], selected: int) -> Row:
    """All engines on one line, each with its state; empty when there is one only."""
    if len(tracks) < 2:
        return Row()
    cells: list[Cell] = [Cell(" ")]
    for index, track in enumerate(tracks):
        light = _LIGHT[track.up]
        tone: Tone = "strong" if index == selected else "muted"
        name = f"[{track.name}]" if index == selected else f" {track.name} "
        cells += [Cell(light.text[0], light.tone), Cell(name, tone, f"screen.select({index})")]
        cells.append(Cell(" "))
    return Row(tuple(cells), (Cell("tab next ", "muted"),))


def control(track: Track) -> Row:
    """k as it was asked for, as the engine applies it, and as the counters show it."""
    if track.up is False and track.figures is not None:
        return faded_row(control(replace(track, reading=track.figures)))
    state = track.state
    cells = [Cell(" k ", "strong")]
    if state is not None:
        wanted = 0 if track.mode_wanted == "target-only" else track.k_wanted
        agreed = wanted == state.k
        cells += [
            Cell(" requested ", "muted"),
            Cell(str(wanted), "strong" if agreed else "accent"),
            Cell(" · applied ", "muted"),
            Cell(str(state.k), "strong" if agreed else "warn"),
            Cell(" ·", "muted"),
        ]
    cells += [Cell(" observed ", "muted"), observed(track)]
    k_max = k_max_of(track)
    cells += [Cell("  of ", "muted"), Cell(str(k_max)) if k_max is not None else BLANK]
    return Row(tuple(cells), (*_mode(track), Cell(" ")))


def brief_control(track: Track) -> Row:
    """The same for a narrow screen: requested, applied and observed k, and the mode."""
    state = track.state
    wanted = None if state is None else 0 if track.mode_wanted == "target-only" else track.k_wanted
    told = () if state is None else (Cell(str(wanted), "strong"), Cell(str(state.k), "strong"))
    right = (*_mode(track)[:1], Cell(" ")) if state is not None else ()
    return Row((Cell(" k ", "strong"), *joined((*told, observed(track)))), right)


def observed(track: Track) -> Cell:
    """Drafted tokens per draft in the latest window: what the engine really does."""
    window = None if track.reading is None else track.reading.window
    state = track.state
    if window is None:
        return BLANK
    seen = window.draft_tokens_per_draft
    if seen is None:
        # Tokens without drafts are a proof as well: nothing is drafted.
        working = bool(window.generated) and window.drafts == 0
        return (
            Cell("0.0", "good" if state is None or state.k == 0 else "warn") if working else BLANK
        )
    above = state is not None and seen > state.k + 0.05
    return Cell(f"{seen:.1f}", "warn" if above else "good")


def k_max_of(track: Track) -> int | None:
    """num_speculative_tokens, from whoever knows it."""
    figures = track.figures
    if figures is None:
        return None
    if figures.state is not None:
        return figures.state.k_max
    return None if figures.sample is None else figures.sample.k_max


def _mode(track: Track) -> Line:
    state = track.state
    if state is None:
        return (Cell("mode ", "muted"), BLANK)
    wanted = track.mode_wanted or state.mode
    tone: Tone = "accent" if wanted == "target-only" else "good"
    cells = [Cell(wanted, tone if wanted == state.mode else "warn")]
    if wanted == "target-only":
        cells.append(Cell(f"{state.fallback}, back to k {state.k_set}", "muted"))
    cells.append(Cell(f"policy {state.policy}", "plain"))
    if state.breaker != "closed":
        cells.append(Cell(f"breaker {state.breaker}", "bad"))
    if state.lease is not None:
        cells.append(Cell(f"lease {duration(state.lease.seconds_left)}", "warn"))
    return joined(tuple(cells))


def notice(track: Track, frozen_for: float | None, local: LocalTime) -> tuple[Row, ...]:
    """What is out of order, and what to do about it; no row when all is well."""
    if frozen_for is not None:
        frozen = Cell(f" frozen {duration(frozen_for)}", "accent")
        return (Row((frozen, Cell("  collection goes on; space thaws the view", "muted"))),)
    reading = track.reading
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
    since = track.since if track.since is not None else reading.t
    why = "no answer" if error is None else oneline(str(error))
    down = Cell(f" down since {at(since, local)} ({duration(reading.t - since)}) ", "bad")
    remedy = (error.remedy if error else None) or "specdeck keeps asking"
    return _trouble(Row((down, Cell(f" {why}"))), remedy)


def _trouble(what: Row, remedy: str | None) -> tuple[Row, ...]:
    return (what, Row((Cell(f" → {remedy}", "muted"),))) if remedy else (what,)
