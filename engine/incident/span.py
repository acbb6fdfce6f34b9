"""The stretch of time that somebody asks for: the last minutes, or from a moment to another."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from specdeck.engine.errors import UsageError
from specdeck.engine.incident.material import Span
from specdeck.engine.text import oneline, parse_duration

LocalTime = Callable[[float], time.struct_time]

LAST_S: Final = 1800.0
LONGEST_S: Final = 7 * 86_400.0
_EXAMPLES: Final = "give one such as 03:10, -20m or 2026-11-22 03:10"
_MOMENT: Final = re.compile(
    r"(?:(?P<date>\d{4}-\d{2}-\d{2})[ T])?"
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?"
)
_DAY_S: Final = 86_400.0


def read_span(
    last: str | None,
    start: str | None,
    end: str | None,
    now: float,
    local: LocalTime = time.localtime,
) -> Span:
    """The span of `--last`, or of `--from` and `--to`, at `now` in Unix seconds.

    Raises UsageError for what is no time, for both ways at once, and for none or too much of it.

    >>> read_span("10m", None, None, 1000.0)
    Span(start=400.0, end=1000.0)
    >>> read_span(None, "-20m", "-5m", 3600.0)
    Span(start=2400.0, end=3300.0)
    """
    if last is not None and start is not None:
        raise UsageError("--last and --from are two ways to say it", remedy="give one of them")
    to = now if end is None else read_moment(end, now, local)
    if start is not None:
        since = read_moment(start, now, local)
    else:
        since = to - (LAST_S if last is None else _read_length(last))
    if not since < to:
        raise UsageError("the time ends before it begins", remedy="--from is the earlier one")
    if to - since > LONGEST_S:
        raise UsageError("more than a week", remedy="give a shorter time")
    return Span(since, to)


def read_moment(text: str, now: float, local: LocalTime = time.localtime) -> float:
    """The Unix time that `text` means; a time without a day is the latest such time.

    >>> noon = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC
    >>> [noon - read_moment(one, noon, time.gmtime) for one in ("-20m", "11:59:30", "13:00")]
    [1200.0, 30.0, 82800.0]
    >>> read_moment("2026-11-21T11:00", noon, time.gmtime) - noon
    -3600.0
    """
    words = text.strip()
    if words == "now":
        return now
    if words.startswith("-") and words[1:2].isdigit():
        return now - _read_length(words[1:])
    found = _MOMENT.fullmatch(words) if len(words) <= 40 else None
    if found is None:
        raise UsageError(f"{oneline(text)[:40]} is no time", remedy=_EXAMPLES)
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise UsageError(f"{words} is no time", remedy=_EXAMPLES)
    day = local(now)
    year, month, date = day.tm_year, day.tm_mon, day.tm_mday
    if found["date"]:
        year, month, date = map(int, found["date"].split("-"))
    try:
        moment = _unix_time((year, month, date, hour, minute, second), local)
    except (ValueError, OverflowError):
        raise UsageError(f"{words} is no time", remedy=_EXAMPLES) from None
    if not found["date"] and moment > now:
        moment -= _DAY_S
    if moment > now + 1.0:
        raise UsageError(f"{words} is still to come", remedy=_EXAMPLES)
    return moment


def _unix_time(parts: tuple[int, int, int, int, int, int], local: LocalTime) -> float:
    """What the calendar `local` calls so, by its own offset from UTC."""
    from calendar import timegm
    from datetime import datetime

    datetime(*parts)  # raises ValueError for the 30th of February
    guess = float(timegm((*parts, 0, 0, 0)))
    for _ in range(2):  # once more, for the day on which the clocks are changed
        offset = local(guess).tm_gmtoff or 0
        guess = float(timegm((*parts, 0, 0, 0))) - offset
    return guess


def _read_length(text: str) -> float:
    try:
        return parse_duration(text)
    except UsageError:
        raise UsageError(
            f"{oneline(text)[:40]} is no time", remedy="give one such as 30m"
        ) from None
