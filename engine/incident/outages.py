"""When an engine did not answer, or was another one afterwards, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdeck.engine.incident.markdown import Clock
from specdeck.engine.incident.material import Material

_MOST: Final = 3
"""Times without an answer, the last ones."""


def list_outages(made: Material, clock: Clock) -> Iterator[str]:
    """What the engine did, a sentence each, without its subject."""
    if made.restarts:
        yield f"was restarted at {clock.list_times(made.restarts)}"
    for first, last in made.downs[-_MOST:]:
        is_last = made.is_down_at_end and last == made.downs[-1][1]
        until = "to the end of the recording" if is_last else f"until {clock(last)}"
        yield f"did not answer from {clock(first)} {until}"
