"""A bar with the interval of its end: how long, and how sure."""

from __future__ import annotations

from typing import Literal

Part = Literal["bar", "interval", "empty"]


def whisker(
    value: float | None, low: float | None, high: float | None, top: float, width: int
) -> list[tuple[str, Part]]:
    """A bar of `width` cells up to `value` of `top`, its interval over its end.

    >>> "".join(text for text, _ in whisker(50.0, 30.0, 70.0, 100.0, 10))
    '━━━├─┼─┤  '
    >>> "".join(text for text, _ in whisker(50.0, None, None, 100.0, 10))
    '━━━━━     '
    >>> whisker(None, None, None, 100.0, 3)
    [('   ', 'empty')]
    """
    if value is None or top <= 0 or width <= 0:
        return [(" " * max(0, width), "empty")]
    end = _cell(value, top, width)
    if low is None or high is None:
        return _runs("━" * end, "", width)
    end = min(end, width - 1)
    first = min(end, _cell(low, top, width))
    last = min(width - 1, max(end, _cell(high, top, width)))
    if last - first < 2:
        return _runs("━" * first, "┃" if last > first else "", width)
    inside = ["─"] * (last - first + 1)
    inside[end - first] = "┼"
    inside[0], inside[-1] = "├", "┤"
    return _runs("━" * first, "".join(inside), width)


def _cell(value: float, top: float, width: int) -> int:
    return min(width, max(0, round(value / top * width)))


def _runs(bar: str, interval: str, width: int) -> list[tuple[str, Part]]:
    parts: list[tuple[str, Part]] = [(bar, "bar"), (interval, "interval")]
    rest = " " * (width - len(bar) - len(interval))
    return [run for run in (*parts, (rest, "empty")) if run[0]]
