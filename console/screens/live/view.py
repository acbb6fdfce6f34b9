"""Everything that the live screen shows, as rows of cells: pure, no Textual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdeck.console.screens.head import brief_control, control, notice, strip, title
from specdeck.console.screens.timeline.view import series, tint
from specdeck.console.state.engine_state import FingerprintNames, Track
from specdeck.console.widgets.blocks import EMPTY_SERIES, Series
from specdeck.console.widgets.cells import (
    BLANK,
    NOTHING,
    Bar,
    Cell,
    Cells,
    Row,
    Tone,
    fact,
    fade_row,
    join_cells,
)
from specdeck.console.widgets.format import (
    DASH,
    KeyLabel,
    LocalTime,
    count,
    gibibytes,
    milliseconds,
    number,
    on_day,
    percent,
    shorten,
)
from specdeck.engine.metrics.reading import Gpu, Reading
from specdeck.engine.metrics.sample import Histogram, quantile
from specdeck.engine.metrics.window import Window

if TYPE_CHECKING:
    from specdeck.console.state.stretch import Stretch


def events(track: Track, local: LocalTime, most: int = 40) -> tuple[Row, ...]:
    """The newest first."""
    if not track.events:
        text = "no event is recorded before this" if track.past else "nothing has happened yet"
        return (Row((Cell(f" {text}", "muted"),)),)
    newest = track.events[: -most - 1 : -1]
    today = newest[0].t if track.reading is None else track.reading.t
    return tuple(
        Row((Cell(f" {on_day(event.t, local, today)}  ", "muted"), Cell(event.text, event.tone)))
        for event in newest
    )


def window_of(track: Track) -> Window | None:
    """The window that the figures are taken from: the last one while the engine is down."""
    return None if track.figures is None else track.figures.window


def tokens(track: Track) -> Cell:
    """Tokens per second, over all requests."""
    window = window_of(track)
    return _cell(number(None if window is None else window.tokens_per_second), _weight(track))


def acceptance(track: Track) -> Cell:
    """The share of drafted tokens that the target accepted."""
    window = window_of(track)
    return _cell(percent(None if window is None else window.acceptance_rate, 1), _weight(track))


def _weight(track: Track) -> Tone:
    if track.up is False:
        return "muted"
    return "accent" if track.past else "strong"


def speculation(track: Track) -> tuple[Row, ...]:
    """What speculation brings, and which path serves it."""
    window, state = window_of(track), track.known
    length = None if window is None else window.mean_acceptance_length
    share = None if window is None else window.output_from_drafts
    ours = None if state is None else state.fingerprint
    theirs = None if state is None else state.system_fingerprint
    runner = DASH if state is None else f"{state.runner} · vLLM {state.vllm}"
    vllms = None if theirs is None else theirs.removeprefix("vllm-")
    tone: Tone = "plain" if track.state is not None else "muted"
    return (
        fact("accepted length", _cell(DASH if length is None else f"{length:.2f}", "strong")),
        fact("output from drafts", _cell(percent(share), "strong")),
        fact("runner", _cell(runner, tone)),
        _names(track, ours, tone),
        fact("vLLM's", _cell(shorten(vllms, 18), tone)),
    )


def _names(track: Track, path: str | None, tone: Tone) -> Row:
    """All three names, or the path's alone where nobody looked behind it."""
    if track.names is None:
        return fact("fingerprint", _cell(shorten(path, 13), tone))
    return fingerprint_names(track.names, path, live=track.up is True)


def shorten_name(name: str | None, count: int) -> str:
    """A name as short as it is told apart: its letter, a tilde when partial, and `count` digits.

    >>> shorten_name("sd1:p~0f3a9c1288aa77bb", 4), shorten_name("sd1:b0f3a9c1288aa77bb", 4)
    ('p~0f3a', 'b0f3a')
    """
    if name is None:
        return ""
    bare = name.rpartition(":")[2]
    return bare[: count + (2 if "~" in bare[:2] else 1)]


def fingerprint_names(found: FingerprintNames, path: str | None, *, live: bool) -> Row:
    """All three in a line; `path` is the engine's latest word, which moves before the others.

    >>> found = FingerprintNames("sd1:b0123456789abcdef", "sd1:p0123456789abcdef")
    >>> row = fingerprint_names(found, None, live=True)
    >>> [cell.text for cell in row.right]
    ['b01234567', ' ', 'p01234567', ' ', 'x–']
    """
    right, *shorter = (_layers(found, path or found.path, count, live) for count in (8, 7, 6, 5, 4))
    return Row((Cell("sd1:", "muted"),), right, shorter=tuple(shorter))


def _layers(found: FingerprintNames, path: str, count: int, live: bool) -> Cells:
    layers = (("build", found.build), ("path", path), ("behaviour", found.behaviour))
    cells: list[Cell] = []
    for layer, name in layers:
        tone: Tone = "plain" if live else "muted"
        if live and found.differs is not None:
            # A path differs with every build.
            tone = "warn" if found.differs in (layer, "build") and name else tone
        text = shorten_name(name, count)
        cells += [Cell(" ")] if cells else []
        cells.append(Cell(text, tone) if text else Cell(f"x{BLANK.text}", "muted"))
    return tuple(cells)


def traffic(track: Track) -> tuple[Row, ...]:
    """What the requests feel."""
    window, figures = window_of(track), track.figures
    sample = None if figures is None else figures.sample
    running, waiting = (None, None) if sample is None else (sample.running, sample.waiting)
    usage, minute = None if sample is None else sample.kv_cache_usage, track.last_minute
    return (
        fact("running · waiting", *_pair(count(running), count(waiting), queue_tone(waiting))),
        fact("KV · prefix", *join_cells((kv_cache(usage), prefix_hits(minute)))),
        fact("TTFT p50·p95", *_latency(None if window is None else window.ttft)),
        fact("ITL p50·p95", *_latency(None if window is None else window.itl)),
        fact("preemptions", preemptions(minute)),
    )


def queue_tone(waiting: float | None) -> Tone:
    """Requests that wait are worth a look."""
    return "warn" if waiting else "strong"


def kv_cache(usage: float | None) -> Cell:
    """How full the KV cache is; a full one preempts.

    >>> kv_cache(0.12).tone, kv_cache(0.97).tone
    ('strong', 'bad')
    """
    tone: Tone = "strong"
    if usage is not None and usage >= 0.8:
        tone = "bad" if usage >= 0.95 else "warn"
    return _cell(percent(usage), tone)


def prefix_hits(minute: Window | None) -> Cell:
    """Share of the prompt tokens that the prefix cache had, over a minute.

    >>> prefix_hits(Window(60.0, prefix_queries=400.0, prefix_hits=300.0)).text, prefix_hits(None)
    ('75 %', Cell(text='–', tone='muted', action=None))
    """
    return _cell(percent(None if minute is None else minute.prefix_hit_rate), "strong")


def preemptions(minute: Window | None) -> Cell:
    """Requests pushed out of the KV cache in a minute, each to be computed anew.

    >>> preemptions(Window(60.0, preemptions=2.0))
    Cell(text='2 in 1 min', tone='bad', action=None)
    """
    if minute is None or minute.preemptions is None:
        return BLANK
    return Cell(
        f"{count(minute.preemptions)} in 1 min", "bad" if minute.preemptions > 0 else "strong"
    )


def _pair(first: str, second: str, tone: Tone) -> tuple[Cell, ...]:
    return join_cells((_cell(first, "strong"), _cell(second, tone)))


def _latency(histogram: Histogram | None) -> tuple[Cell, ...]:
    if histogram is None:
        return (BLANK,)
    half, most = quantile(histogram, 0.5), quantile(histogram, 0.95)
    if half is None and most is None:
        return (BLANK,)
    cells = _cell(milliseconds(half), "strong"), _cell(milliseconds(most), "strong")
    return (*join_cells(cells), Cell(" ms", "muted"))


def _cell(text: str, tone: Tone = "plain") -> Cell:
    return BLANK if text == DASH else Cell(text, tone)


def positions(track: Track) -> tuple[Bar, ...]:
    """Acceptance at each position; those beyond the live k are dimmed."""
    window, state = window_of(track), track.known
    shares = None if window is None else window.acceptance_per_position
    k_max = len(shares) if shares else state.k_max if state else 0
    live = state.k if state is not None else k_max
    bars = []
    for position in range(k_max):
        share = shares[position] if shares else None
        tone: Tone = "plain" if position < live and track.up else "muted"
        bars.append(Bar(str(position + 1), share, percent(share), tone))
    return tuple(bars)


def gpus(reading: Reading | None) -> Row:
    """The GPUs in one line; an empty row where NVML does not answer."""
    found = None if reading is None else reading.gpus
    if not found:
        return Row()
    name = f" GPU {found[0].name} " if len(found) == 1 else f" {len(found)} GPUs "
    used, whole = _sum([g.memory_used for g in found]), _sum([g.memory_total for g in found])
    power = _sum([gpu.power_w for gpu in found])
    cells = (
        Cell(f"{percent(_mean(found))} busy"),
        Cell(f"{gibibytes(used)} of {gibibytes(whole)} GiB"),
        Cell(f"{count(power)} W"),
    )
    return Row((Cell(name, "muted"), *join_cells(cells)))


def _mean(found: tuple[Gpu, ...]) -> float | None:
    total = _sum([gpu.utilisation for gpu in found])
    return None if total is None else total / len(found)


def _sum(values: list[int] | list[float] | list[int | None] | list[float | None]) -> float | None:
    """None as soon as one of them is not known: part of a sum is not the sum."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def token_series(track: Track, stretch: Stretch | None, local: LocalTime) -> Series:
    """Tokens per second over time."""
    if stretch is not None:
        return series(stretch, "tokens", tokens(track), local)
    values = tuple(point.tokens for point in track.points)
    return _series(track, values, tokens(track))


def acceptance_series(track: Track, stretch: Stretch | None, local: LocalTime) -> Series:
    """The acceptance rate over time."""
    if stretch is not None:
        return series(stretch, "acceptance", acceptance(track), local)
    values = tuple(point.acceptance for point in track.points)
    return _series(track, values, acceptance(track))


def _series(track: Track, values: tuple[float | None, ...], latest: Cell) -> Series:
    marks = tuple((mark.at, mark.label) for mark in track.marks)
    times = tuple(point.t for point in track.points)
    return Series(values, track.total, latest, marks, times)


def compact(track: Track, local: LocalTime) -> tuple[Row, ...]:
    """The figures that matter most, in eight short lines."""
    serve, length = traffic(track), speculation(track)[0]
    charted = (
        fact("tokens/s", tokens(track)),
        fact("acceptance", acceptance(track)),
        length,
    )
    body = (*charted, serve[0], serve[2], serve[3])
    trouble = notice(track, local)
    if track.up is False:
        return (*trouble, *(_indent(fade_row(row)) for row in body))
    return (brief_control(track), *trouble[:1], *map(_indent, body))


def _indent(row: Row) -> Row:
    return Row((Cell(" "), *row.left), (*row.right, Cell(" ")))


@dataclass(frozen=True, slots=True)
class Live:
    """One moment of the live screen; each field feeds one widget."""

    identity: Row = NOTHING
    engines: Row = NOTHING
    control: Row = NOTHING
    notice: tuple[Row, ...] = ()
    tokens: Series = EMPTY_SERIES
    acceptance: Series = EMPTY_SERIES
    positions: tuple[Bar, ...] = ()
    speculation: tuple[Row, ...] = ()
    traffic: tuple[Row, ...] = ()
    gpu: Row = NOTHING
    events: tuple[Row, ...] = ()
    compact: tuple[Row, ...] = ()


def live(
    track: Track,
    tracks: tuple[Track, ...],
    selected: int,
    *,
    armed: bool,
    stretch: Stretch | None,
    local: LocalTime,
    key_label: KeyLabel,
    width: int = 80,
) -> Live:
    """What to show of `track`, which is the selected one or an older state of it, in `width`
    columns.

    `stretch` is what the charts show; without it they have a column for each reading.
    """
    spec, serve, about_k = speculation(track), traffic(track), control(track)
    brief = compact(track, local)
    if track.up is False:
        spec, serve = tuple(map(fade_row, spec)), tuple(map(fade_row, serve))
    elif track.past:
        spec, serve, brief = tint(spec), tint(serve), tint(brief)
        about_k = tint((about_k,))[0]
    return Live(
        identity=title(track, armed=armed),
        engines=strip(tracks, selected, key_label, width),
        control=about_k,
        notice=notice(track, local),
        tokens=token_series(track, stretch, local),
        acceptance=acceptance_series(track, stretch, local),
        positions=positions(track),
        speculation=spec,
        traffic=serve,
        gpu=gpus(track.reading),
        events=events(track, local),
        compact=brief,
    )
