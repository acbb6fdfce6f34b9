"""Numbers to words: what is not known is `–`, never 0."""

from __future__ import annotations

import time
from collections.abc import Callable

DASH = "–"

LocalTime = Callable[[float], time.struct_time]
"""Unix time to the operator's calendar; `time.localtime` outside tests."""

KeyLabel = Callable[[str], str]
"""The key of an action by the action's id, as it is bound: for a hint."""


def number(value: float | None) -> str:
    """About three significant figures, without an exponent.

    >>> [number(value) for value in (None, 0.0, 6.14, 31.02, 512.3, 12_345.0, 2_600_000.0)]
    ['–', '0.0', '6.1', '31', '512', '12.3k', '2.6M']
    """
    if value is None:
        return DASH
    if abs(value) < 9.95:
        return f"{value:.1f}"
    if abs(value) < 9999.5:
        return f"{value:.0f}"
    if abs(value) < 999_950:
        return f"{value / 1000:.1f}k"
    return f"{value / 1_000_000:.1f}M"


def tick(value: float) -> str:
    """A round number on an axis.

    >>> [tick(value) for value in (0.0, 0.5, 2.5, 600.0, 1500.0)]
    ['0', '0.5', '2.5', '600', '1.5k']
    """
    if value < 1000:
        return f"{value:g}"
    return f"{value / 1000:g}k" if value < 1_000_000 else f"{value / 1_000_000:g}M"


def percent(share: float | None, digits: int = 0) -> str:
    """A share of 0 to 1.

    >>> percent(0.6249, 1), percent(0.12), percent(None)
    ('62.5 %', '12 %', '–')
    """
    return DASH if share is None else f"{share:.{digits}%}".replace("%", " %")


def count(value: float | None) -> str:
    """Whole things.

    >>> count(4.0), count(None)
    ('4', '–')
    """
    return DASH if value is None else f"{value:.0f}"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds, without the unit.

    >>> milliseconds(0.0061), milliseconds(0.0801), milliseconds(2.5), milliseconds(None)
    ('6.1', '80', '2500', '–')
    """
    return DASH if seconds is None else number(seconds * 1000)


def gibibytes(amount: float | None) -> str:
    """Bytes in GiB, without the unit.

    >>> gibibytes(61 * 2**30), gibibytes(3 * 2**29), gibibytes(None)
    ('61', '1.5', '–')
    """
    return DASH if amount is None else number(amount / 2**30)


def at(t: float, local: LocalTime) -> str:
    """The time of day.

    >>> at(0.0, time.gmtime)
    '00:00:00'
    """
    return time.strftime("%H:%M:%S", local(t))


def on_day(t: float, local: LocalTime, today: float) -> str:
    """The time of day, and the day too where that is not the one of `today`.

    >>> on_day(0.0, time.gmtime, 3600.0), on_day(0.0, time.gmtime, 86_400.0)
    ('00:00:00', '01-01 00:00:00')
    """
    then, now = local(t), local(today)
    same = (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M:%S" if same else "%m-%d %H:%M:%S", then)


def shorten(text: str | None, width: int) -> str:
    """The beginning of a text, marked where it was cut.

    >>> shorten("sd1:0f3a9c12aa", 9), shorten(None, 9)
    ('sd1:0f3a…', '–')
    """
    if text is None:
        return DASH
    return text if len(text) <= width else text[: width - 1] + "…"
