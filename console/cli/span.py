"""The time that a command is asked for: the last minutes, or from a moment to another."""

from __future__ import annotations

import time
from typing import Final

from specdeck.console.state.moment import EXAMPLES, parse_moment
from specdeck.console.widgets.format import LocalTime
from specdeck.engine.errors import UsageError
from specdeck.engine.incident.material import Span
from specdeck.engine.text import oneline, parse_duration

LAST_S: Final = 1800.0
LONGEST_S: Final = 7 * 86_400.0


def read_span(
    last: str | None,
    start: str | None,
    end: str | None,
    now: float,
    local: LocalTime = time.localtime,
) -> Span:
    """The span of `--last`, or of `--since` and `--until`, at `now` in Unix seconds.

    Raises UsageError for what is no time, for both ways at once, and for none or too much of it.

    >>> read_span("10m", None, None, 1000.0)
    Span(start=400.0, end=1000.0)
    >>> read_span(None, "-20m", "-5m", 3600.0)
    Span(start=2400.0, end=3300.0)
    """
    if last is not None and start is not None:
        raise UsageError("--last and --since are two ways to say it", remedy="give one of them")
    to = now if end is None else _read_moment("--until", end, now, local)
    if start is not None:
        since = _read_moment("--since", start, now, local)
    else:
        since = to - (LAST_S if last is None else _read_length(last))
    if not since < to:
        raise UsageError("the time ends before it begins", remedy="--since is the earlier one")
    if to - since > LONGEST_S:
        raise UsageError("more than a week", remedy="give a shorter time")
    return Span(since, to)


def _read_moment(option: str, text: str, now: float, local: LocalTime) -> float:
    if not text.strip():
        # An unset variable of a script must not come to mean now.
        raise UsageError(f"{option} names no time", remedy=f"such as {EXAMPLES}")
    found = parse_moment(text, now, local)
    return now if found is None else found


def _read_length(text: str) -> float:
    try:
        return parse_duration(text)
    except UsageError:
        raise UsageError(
            f"{oneline(text)[:40]} is no time", remedy="give one such as 30m"
        ) from None
