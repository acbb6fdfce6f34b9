"""Speed over k: what was measured, and what the position counters say of each k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specdeck.console.state.engine_state import Track
from specdeck.console.widgets.blocks import Curve, CurveRow
from specdeck.console.widgets.cells import Cell, Row, Tone, heading
from specdeck.console.widgets.format import DASH, KeyLabel, number, percent
from specdeck.engine.policy.estimates import tokens_by_k
from specdeck.engine.protocol.tuning import CurvePoint, Outlook, Tuning

OLD_S: Final = 30.0
"""Seconds after which a measurement says little of the load of this moment."""


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """What was measured at one k."""

    tokens_per_second: float
    ms_per_token: float
    low: float | None = None
    high: float | None = None
    age_s: float | None = None
    """Seconds since it was last measured; None where that is not told."""

    @property
    def old(self) -> bool:
        """Whether the load may be another one by now."""
        return self.age_s is not None and self.age_s > OLD_S


@dataclass(frozen=True, slots=True)
class SweepCurve:
    """What a sweep of this console has found so far."""

    points: Mapping[int, MeasuredPoint]
    batch: float | None
    """Requests in a step, on average."""
    best: int | None
    tied: tuple[int, ...]
    title: str
    """When, and of how many visits."""
    words: Row
    """How far it is, or the verdict."""


_COLUMNS = (9, 11, 9, 9, 9, 9)
"""Cells; the second one has the age of an old measurement in it as well."""
_HEADS = ("tokens/s", "95 %", "ms/token", "accepted", "tok/step", "expected")
_CHOICES = ((0, 1, 2, 3, 4, 5), (0, 2, 3, 4, 5), (0, 2, 4, 5), (0, 2, 4), (0, 2), (0,))
"""Which columns are shown, as the width allows."""


def curve(track: Track, swept: SweepCurve | None, key_label: KeyLabel) -> Curve:
    """The curve at the present batch size."""
    state, tuning = track.known, track.tuning
    if state is None:
        return Curve(title=heading("speed over k"))
    measured, at = _find_measured(track, tuning)
    if swept is not None:
        measured, at = dict(swept.points), _requests(swept.batch, swept.title)
    outlook = _outlook(track)
    rows = tuple(
        _row(k, track, measured.get(k), outlook.get(k), swept) for k in range(state.k_max + 1)
    )
    # What was measured under another load must not make the others' bars small.
    old = {k for k, each in measured.items() if each.old and not _is_timed(outlook.get(k))}
    drawn = [(k, row) for k, row in enumerate(rows) if row.value is not None]
    highest = [
        max(value for value in (row.value, row.high) if value is not None)
        for k, row in drawn
        if k not in old or all(other in old for other, _ in drawn)
    ]
    heads = tuple(f"{name:>{width}}" for name, width in zip(_HEADS, _COLUMNS, strict=True))
    return Curve(
        title=heading("speed over k", Cell(at, "muted")) if at else heading("speed over k"),
        head=tuple((Cell("".join(heads[i] for i in choice), "muted"),) for choice in _CHOICES),
        rows=rows,
        top=max(highest, default=1.0),
        note=swept.words
        if swept is not None
        else _hint(measured, None if track.past else key_label("sweep.toggle")),
        focus=swept.best if swept and swept.best is not None else state.k,
    )


def _hint(measured: Mapping[int, MeasuredPoint], key: str | None) -> Row:
    """What measures more; nothing does in the past, where there is no key."""
    if key is None:
        return Row() if measured else Row((Cell(" no measured speed is recorded", "muted"),))
    known = f"{key} sweeps k on the live traffic"
    text = known if measured else f"nothing measured yet: {key} sweeps k"
    return Row((Cell(f" {text}", "muted"),))


def _requests(batch: float | None, source: str) -> str:
    return source if batch is None else f"{batch:.1f} requests · {source}"


def _find_measured(track: Track, tuning: Tuning | None) -> tuple[dict[int, MeasuredPoint], str]:
    """The engine's own curve in the bucket of batch sizes that is in use."""
    if tuning is None or not tuning.curve:
        return {}, ""
    state = track.known
    running = state.running if state is not None else 0
    here = [point for point in tuning.curve if point.first <= running <= point.last]
    if not here:
        nearest = min(tuning.curve, key=lambda point: _distance(point, running))
        here = [point for point in tuning.curve if point.first == nearest.first]
    one = here[0]
    sizes = str(one.first) if one.first == one.last else f"{one.first}-{one.last}"
    noun = "request" if sizes == "1" else "requests"
    found = {point.k: _as_measured(point) for point in here}
    return found, f"{sizes} {noun} · {format_ages(found)}"


def format_ages(measured: Mapping[int, MeasuredPoint]) -> str:
    """How old the measurements are.

    >>> recent = MeasuredPoint(9.0, 1.0, age_s=2.0)
    >>> format_ages({0: recent}), format_ages({0: MeasuredPoint(9.0, 1.0)})
    ('of the last 30 s', 'as it served lately')
    >>> old = MeasuredPoint(9.0, 1.0, age_s=745.0)
    >>> format_ages({0: MeasuredPoint(9.0, 1.0, age_s=41.0), 1: old})
    'dimmed: 41 s to 12 min old'
    """
    old = sorted(each.age_s for each in measured.values() if each.age_s is not None and each.old)
    if not old:
        unknown = any(each.age_s is None for each in measured.values())
        return "as it served lately" if unknown else f"of the last {OLD_S:.0f} s"
    first, last = format_age(old[0]), format_age(old[-1])
    return f"dimmed: {last} old" if first == last else f"dimmed: {first} to {last} old"


def format_age(seconds: float) -> str:
    """An age in its largest unit.

    >>> format_age(41.4), format_age(119.0), format_age(745.0), format_age(9000.0)
    ('41 s', '119 s', '12 min', '2 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min" if seconds < 6000 else f"{seconds // 3600:.0f} h"


def _distance(point: CurvePoint, running: int) -> float:
    return abs(point.requests - running) if running else point.age_s or 0.0


def _as_measured(point: CurvePoint) -> MeasuredPoint:
    return MeasuredPoint(
        point.tokens_per_second, point.ms_per_token,
        point.tokens_per_second_low, point.tokens_per_second_high, point.age_s,
    )  # fmt: skip


def _outlook(track: Track) -> dict[int, Outlook]:
    """What each k would give: the engine's word, or its position counters alone."""
    if track.tuning is not None and track.tuning.outlook:
        return {each.k: each for each in track.tuning.outlook}
    window = None if track.figures is None else track.figures.window
    state = track.known
    if state is None or window is None or not window.drafted_per_position:
        return {}
    drafted, accepted = window.drafted_per_position, window.accepted_per_position or ()
    if len(accepted) != len(drafted):
        return {}
    found = tokens_by_k(drafted, accepted, state.k_max)
    return {
        each.k: Outlook(each.k, each.value, None, False, each.extrapolated) for each in found or ()
    }


def _format_acceptance(track: Track, k: int) -> str:
    """Acceptance at position k, which k drafts last."""
    if k == 0:
        return ""
    shares: tuple[float | None, ...] | None
    shares = None if track.tuning is None else track.tuning.acceptance
    if shares is None and track.figures is not None and track.figures.window is not None:
        shares = track.figures.window.acceptance_per_position
    return percent(shares[k - 1]) if shares and k <= len(shares) else DASH


def _row(
    k: int,
    track: Track,
    measured: MeasuredPoint | None,
    outlook: Outlook | None,
    swept: SweepCurve | None,
) -> CurveRow:
    expected = outlook.tokens_per_second if outlook is not None else None
    known = track.tuning is not None or outlook is not None
    guess = "~" if outlook is not None and (outlook.extrapolated or not outlook.timed) else ""
    beyond = "~" if outlook is not None and outlook.extrapolated else ""
    texts = (
        number(measured.tokens_per_second) if measured else DASH,
        _interval(measured),
        f"{measured.ms_per_token:.1f}" if measured else DASH,
        _format_acceptance(track, k) if known else DASH,
        f"{beyond}{outlook.tokens_per_step:.2f}" if outlook else DASH,
        DASH if expected is None else f"{guess}{number(expected)}",
    )
    old = measured is not None and measured.old
    tones: tuple[Tone, ...] = ("strong", "muted", "plain", "muted", "plain", "plain")
    if old:
        tones = ("muted", "muted", "muted", *tones[3:])
    cells = tuple(
        Cell(f"{text:>{width}}", "muted" if text == DASH else tone)
        for text, width, tone in zip(texts, _COLUMNS, tones, strict=True)
    )
    forecast = measured is None or (old and _is_timed(outlook))
    sure = None if old else measured
    return CurveRow(
        _label(k, track, swept),
        expected if measured is None or forecast else measured.tokens_per_second,
        sure.low if sure else None,
        sure.high if sure else None,
        measured is None or old,
        tuple(tuple(cells[i] for i in choice) for choice in _CHOICES),
    )


def _is_timed(outlook: Outlook | None) -> bool:
    """Whether there is a forecast of tokens per second."""
    return outlook is not None and outlook.tokens_per_second is not None


def _interval(measured: MeasuredPoint | None) -> str:
    """How sure it is, or how old."""
    if measured is not None and measured.old and measured.age_s is not None:
        return f"{format_age(measured.age_s)} old"
    if measured is None or measured.low is None or measured.high is None:
        return DASH
    return f"{number(max(0.0, measured.low))}–{number(measured.high)}"


def _label(k: int, track: Track, swept: SweepCurve | None) -> Cell:
    """k, with a mark at the one in force, and in another tone where it is the best."""
    state = track.state
    mark = "►" if state is not None and state.k == k else " "
    tone: Tone = "plain"
    if swept is not None and swept.best is not None:
        tone = "good" if k == swept.best else "accent" if k in swept.tied else "muted"
    return Cell(f"{mark}{k:>2} ", tone)
