"""A moment as somebody writes it: 03:10, -20m, yesterday 23:00; and how it is named again."""

from __future__ import annotations

import calendar
import re
import time
from typing import Final

from specdeck.console.widgets.format import LocalTime
from specdeck.engine.errors import UsageError
from specdeck.engine.text import format_duration, oneline

EXAMPLES: Final = "03:10, -20m, yesterday 23:00, 2026-11-22 03:10"

DAY_S: Final = 86_400.0
_UNITS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": DAY_S}
_LENGTH: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,3})? ?(?:min|[smhd]) ?)+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?) ?(min|[smhd])")
_MOMENT: Final = re.compile(
    r"(?:(?P<day>[a-z]{3,9}|(?:\d{4}-)?\d{1,2}-\d{1,2})(?: |(?<=\d)t))?"
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?"
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_LONGEST: Final = 40
"""Characters; a longer text is a slip of the clipboard."""


def parse_moment(text: str, now: float, local: LocalTime) -> float | None:
    """What `text` means at `now`, in Unix time; None for now itself.

    A time without a day is the latest such time, a weekday the last such day. Raises UsageError
    for what is no moment, and for one that is still to come.

    >>> noon = 1_795_262_400.0  # Saturday, 2026-11-21 12:00:00 UTC
    >>> [noon - (parse_moment(text, noon, time.gmtime) or 0) for text in ("-20m", "1h 30m ago")]
    [1200.0, 5400.0]
    >>> for text in ("03:10", "23:00", "yesterday 03:10", "fri 08:00", "2026-11-20T03:10:05"):
    ...     print(time.strftime("%a %H:%M:%S", time.gmtime(parse_moment(text, noon, time.gmtime))))
    Sat 03:10:00
    Fri 23:00:00
    Fri 03:10:00
    Fri 08:00:00
    Fri 03:10:05
    """
    words = " ".join(text.casefold().split()) if len(text) <= _LONGEST else "?"
    if words in ("", "now"):
        return None
    found = _before(words, now)
    if found is None:
        found = _by_calendar(words, now, local)
    if found is None:
        raise UsageError(f"{oneline(text)[:_LONGEST]} is no time", remedy=f"such as {EXAMPLES}")
    if found > now:
        raise UsageError(f"{oneline(text)} is still to come", remedy=f"such as {EXAMPLES}")
    return found


def _before(words: str, now: float) -> float | None:
    """So long before now; None for what is no length of time."""
    length = words.removeprefix("-").removesuffix("ago").strip()
    if not _LENGTH.fullmatch(length):
        return None
    return now - sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(length))


def _by_calendar(words: str, now: float, local: LocalTime) -> float | None:
    """A time of day, on a day or on the latest one that has had it."""
    match = _MOMENT.fullmatch(words)
    if match is None:
        return None
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    today, day = local(now), match["day"]
    date = (today.tm_year, today.tm_mon, today.tm_mday)
    at = (hour, minute, second)
    if day is None:
        found = _unix_time(date, at, local)
        return found if found <= now else _unix_time(_days_before(date, 1), at, local)
    if day in ("today", "yesterday"):
        return _unix_time(_days_before(date, int(day == "yesterday")), at, local)
    if day[0].isdigit():
        return _on_date(day, at, now, local)
    weekday = next((n for n, name in enumerate(_WEEKDAYS) if name.startswith(day)), None)
    if weekday is None:
        return None
    back = (today.tm_wday - weekday) % 7
    found = _unix_time(_days_before(date, back), at, local)
    return found if found <= now else _unix_time(_days_before(date, back + 7), at, local)


_Date = tuple[int, int, int]


def _on_date(day: str, at: _Date, now: float, local: LocalTime) -> float | None:
    """On a date; one without a year is the latest that is not to come."""
    *years, month, number = map(int, day.split("-"))
    year = years[0] if years else local(now).tm_year
    for tried in (year, year - 1):
        if not 1971 <= tried <= 9998 or not 1 <= month <= 12:
            return None
        if not 1 <= number <= calendar.monthrange(tried, month)[1]:
            return None
        found = _unix_time((tried, month, number), at, local)
        if years or found <= now:
            return found
    return None


def _days_before(date: _Date, days: int) -> _Date:
    then = time.gmtime(calendar.timegm((*date, 12, 0, 0)) - days * DAY_S)
    return then.tm_year, then.tm_mon, then.tm_mday


def _unix_time(date: _Date, at: _Date, local: LocalTime) -> float:
    """When the operator's calendar says so; where clocks go back, the first time that it does."""
    wanted = float(calendar.timegm((*date, *at)))
    offsets = {calendar.timegm(local(wanted + shift)) - (wanted + shift) for shift in _AROUND}
    hits = [wanted - offset for offset in offsets]
    exact = [one for one in hits if calendar.timegm(local(one)) == wanted]
    return min(exact or hits)


_AROUND: Final = (-DAY_S, 0.0, DAY_S)
"""A change of the clocks lies between the offsets before and after it."""


def format_moment(t: float, local: LocalTime, *, now: float | None = None) -> str:
    """A moment, with its day unless that is today's.

    >>> format_moment(1_795_262_400.0, time.gmtime)
    '2026-11-21 12:00:00'
    >>> format_moment(1_795_262_400.0, time.gmtime, now=1_795_262_460.0)
    '12:00:00'
    """
    then, today = local(t), None if now is None else local(now)
    same = today is not None and (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S", then)


def format_ago(seconds: float) -> str:
    """How long ago, to the second for ten minutes and after that to the minute.

    >>> [format_ago(s) for s in (0.4, 75, 1234, 12_345, 200_000)]
    ['0 s ago', '1 min 15 s ago', '20 min ago', '3 h 25 min ago', '2 d 7 h ago']
    """
    whole = max(0.0, seconds)
    return f"{format_duration(whole if whole < 600 else whole // 60 * 60)} ago"
