"""Durations as people write them."""

from __future__ import annotations

from specdeck.engine.errors import UsageError


def parse_duration(text: str) -> float:
    """How long `text` is, in seconds; raises UsageError for what is no duration.

    >>> parse_duration("24h"), parse_duration("90s"), parse_duration("1.5d")
    (86400.0, 90.0, 129600.0)
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], text[-1:]
    try:
        found = float(number) * units[unit]
    except (KeyError, ValueError):
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"{text} is no time between checks", remedy="give one such as 24h or 30m")
    return found
