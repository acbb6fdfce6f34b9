"""Charts as SVG files that a browser, a viewer and an issue tracker show, light or dark."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from specdeck.engine.text import printable

LocalTime = Callable[[float], time.struct_time]

WIDTH: Final = 960
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 58, 34
_TICKS: Final = 8
_LEAST_PEAK: Final = 1e-6
"""What lies below is drawn as nothing."""
_ROWS: Final = 2
"""Of labels of marks, one above the other."""
_LONGEST_LABEL: Final = 18
_CHARACTER: Final = 6.6
"""Pixels of a character of a mark's label."""

_STYLE: Final = """
  .paper { fill: #ffffff } .ink { fill: #1c2128 } .soft { fill: #57606a }
  text { font-family: ui-sans-serif, system-ui, sans-serif; font-size: 12px }
  .title { font-size: 14px; font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 } .axis { stroke: #8c959f; stroke-width: 1 }
  .band { fill: #0969da; fill-opacity: .22 }
  .line { fill: none; stroke: #0969da; stroke-width: 1.8; stroke-linejoin: round }
  .dot { fill: #0969da }
  .down { fill: #cf222e; fill-opacity: .13 }
  .mark { stroke: #8250df; stroke-width: 1.2 } .label { fill: #6639ba; font-size: 11px }
  .bad { stroke: #cf222e } .labelbad { fill: #a40e26; font-size: 11px }
  .fall { stroke: #cf222e; stroke-width: 1.6; stroke-dasharray: 5 3 }
  .falltext { fill: #a40e26; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9198a1 }
    .grid { stroke: #30363d } .axis { stroke: #6e7681 }
    .band { fill: #58a6ff; fill-opacity: .25 } .line { stroke: #58a6ff } .dot { fill: #58a6ff }
    .down { fill: #f85149; fill-opacity: .2 }
    .mark { stroke: #bc8cff } .label { fill: #d2a8ff }
    .bad { stroke: #f85149 } .labelbad { fill: #ffa198 }
    .fall { stroke: #f85149 } .falltext { fill: #ffa198 }
  }
"""


@dataclass(frozen=True, slots=True)
class Point:
    """One column of a chart: the least, the most and the mean."""

    t: float
    """Unix time of its middle, seconds."""
    low: float
    high: float
    mean: float


@dataclass(frozen=True, slots=True)
class ChartMark:
    """Something that happened."""

    t: float
    label: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure over time."""

    title: str
    unit: str
    """`%` for shares of 1."""
    start: float
    """Unix time, seconds; so is `end`."""
    end: float
    points: Sequence[Point | None]
    """None is a gap."""
    marks: Sequence[ChartMark] = ()
    downs: Sequence[tuple[float, float]] = ()
    """When the engine did not answer."""
    fall: tuple[float, str] | None = None
    """Since when it is worse, in a word."""


def draw_chart(chart: Chart, local: LocalTime = time.localtime) -> str:
    """The chart as SVG, for a file; it says what it shows to who cannot see it."""
    top = _find_top(chart)
    span = max(chart.end - chart.start, 1e-9)

    def x(t: float) -> float:
        share = (min(max(t, chart.start), chart.end) - chart.start) / span
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - min(value / top, 1.0) * (HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{_text(_describe(chart))}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="ink title" x="{_LEFT}" y="20">{_text(chart.title)}</text>',
    ]
    for step in range(5):
        value = top * step / 4
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}"'
            f' y2="{y(value):.1f}"/><text class="soft" x="{_LEFT - 8}" y="{y(value) + 4:.1f}"'
            f' text-anchor="end">{_text(_value(value, chart.unit))}</text>'
        )
    for t, label in _ticks(chart.start, chart.end, local):
        parts.append(
            f'<line class="axis" x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{HEIGHT - _BOTTOM}"'
            f' y2="{HEIGHT - _BOTTOM + 5}"/><text class="soft" x="{x(t):.1f}"'
            f' y="{HEIGHT - _BOTTOM + 19}" text-anchor="middle">{label}</text>'
        )
    for first, last in chart.downs:
        width = max(2.0, x(last) - x(first))
        parts.append(
            f'<rect class="down" x="{x(first):.1f}" y="{_TOP}" width="{width:.1f}"'
            f' height="{HEIGHT - _TOP - _BOTTOM}"/>'
        )
    for run in _runs(chart.points):
        parts += _draw_run(run, x, y)
    parts += _draw_marks(chart, x)
    if chart.fall is not None:
        t, word = chart.fall
        is_right = x(t) > WIDTH - 220
        parts.append(
            f'<line class="fall" x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{_TOP}"'
            f' y2="{HEIGHT - _BOTTOM}"/><text class="falltext" y="{_TOP + 14}"'
            f' x="{x(t) + (-6 if is_right else 6):.1f}"'
            f' text-anchor="{"end" if is_right else "start"}">{_text(word)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _draw_run(
    run: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    """Columns without a gap: the band of the least and the most, and the line of the mean."""
    if len(run) == 1:
        only = run[0]
        height = max(1.0, y(only.low) - y(only.high))
        return [
            f'<rect class="band" x="{x(only.t) - 2:.1f}" y="{y(only.high):.1f}" width="4"'
            f' height="{height:.1f}"/><circle class="dot" cx="{x(only.t):.1f}"'
            f' cy="{y(only.mean):.1f}" r="2"/>'
        ]
    above = [f"{x(one.t):.1f},{y(one.high):.1f}" for one in run]
    below = [f"{x(one.t):.1f},{y(one.low):.1f}" for one in reversed(run)]
    mean = " ".join(f"{x(one.t):.1f},{y(one.mean):.1f}" for one in run)
    return [
        f'<polygon class="band" points="{" ".join((*above, *below))}"/>',
        f'<polyline class="line" points="{mean}"/>',
    ]


def _runs(points: Sequence[Point | None]) -> list[list[Point]]:
    found: list[list[Point]] = [[]]
    for one in points:
        if one is None:
            found.append([])
        else:
            found[-1].append(one)
    return [run for run in found if run]


def _draw_marks(chart: Chart, x: Callable[[float], float]) -> list[str]:
    """A line for each event, and its label where there is room for one."""
    parts: list[str] = []
    ends = [0.0] * _ROWS
    for mark in sorted(chart.marks, key=lambda one: one.t):
        at = x(mark.t)
        kind = " bad" if mark.bad else ""
        parts.append(
            f'<line class="mark{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 4}"'
            f' y2="{HEIGHT - _BOTTOM}" stroke-opacity=".55"/>'
        )
        label = printable(" ".join(mark.label.split()))
        label = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
        width = len(label) * _CHARACTER + 4
        left = min(at, WIDTH - _RIGHT - width)
        row = next((n for n in range(_ROWS) if ends[n] <= left), None)
        if label and row is not None:
            ends[row] = left + width
            parts.append(
                f'<text class="label{"bad" if mark.bad else ""}" x="{left:.1f}"'
                f' y="{_TOP - 10 - 12 * row}">{_text(label)}</text>'
            )
    return parts


def _find_top(chart: Chart) -> float:
    """The highest value of the axis: a round one that all points are below."""
    if chart.unit == "%":
        return 1.0
    high = max((one.high for one in chart.points if one is not None), default=0.0)
    if not (math.isfinite(high) and high > _LEAST_PEAK):
        return 1.0
    size = 10.0 ** math.floor(math.log10(high))
    return next(size * step for step in (1, 2, 4, 5, 8, 10, 20) if high <= size * step)


def _ticks(start: float, end: float, local: LocalTime) -> list[tuple[float, str]]:
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
    step = next((one for one in steps if (end - start) / one <= _TICKS), 86_400)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 43_200 else "%m-%d %H:%M"
    offset = local(start).tm_gmtoff or 0
    first = math.ceil((start + offset) / step) * step - offset
    count = int((end - first) / step) + 1
    times = [first + n * step for n in range(max(0, min(count, 2 * _TICKS)))]
    return [(t, time.strftime(form, local(t))) for t in times]


def _value(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value * 100:.0f} %"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _describe(chart: Chart) -> str:
    means = [one.mean for one in chart.points if one is not None]
    if not means:
        return f"{chart.title}: nothing is known"
    low, high = (_value(value, chart.unit) for value in (min(means), max(means)))
    return f"{chart.title}: from {low} to {high}"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
