"""Where a figure fell, as an event: what nobody has told of is found in the figures themselves."""

from __future__ import annotations

from typing import Final

from specdeck.console.state.past import History, SeenEvent
from specdeck.engine.incident.collapse import Fall, find_fall

COLUMNS: Final = 100
"""A fall is found to a hundredth of the time that is searched."""
_LEAST_SHARE: Final = 0.25
"""Smaller falls come and go with the traffic."""
_LEAST_S: Final = 15.0
_LEAST_PART: Final = 0.05
"""A fall has lasted so long, in seconds and of the time that is searched."""


def find_event_of_fall(history: History, start: float, seconds: float) -> SeenEvent | None:
    """The largest lasting fall of acceptance, or else of speed; None where neither fell by much.

    Raises SpecdeckError for a history that cannot be read.
    """
    columns = history.overview(start, start + seconds, COLUMNS)
    known = [one.end for one in columns if one.tokens is not None]
    lasts = max(_LEAST_S, _LEAST_PART * seconds)
    for found in (find_fall(columns, "acceptance"), find_fall(columns, "tokens_per_second")):
        if found is None or found.share < _LEAST_SHARE:
            continue
        if found.t - known[0] >= _LEAST_S and known[-1] - found.t >= lasts:
            return SeenEvent(found.t, "other", describe_fall(found), "bad")
    return None


def describe_fall(fall: Fall) -> str:
    """A fall in words.

    >>> describe_fall(Fall("acceptance", 0.0, 0.458, 0.035))
    'acceptance fell from 46 % to 4 %'
    >>> describe_fall(Fall("tokens_per_second", 0.0, 414.2, 156.1))
    'tokens/s fell from 414 to 156'
    """
    if fall.figure == "acceptance":
        return f"acceptance fell from {fall.before * 100:.0f} % to {fall.after * 100:.0f} %"
    return f"tokens/s fell from {fall.before:.0f} to {fall.after:.0f}"
