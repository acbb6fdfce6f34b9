"""A notice that lies over the screen for some seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from textual.notifications import Notification

_MOMENT_S: Final = 0.05


@dataclass
class Notice(Notification):
    """Textual's, by a clock that nobody sets, and with a moment left until it is over.

    Textual shows a notice anew on each screen, for the time that is left. That may be over by
    then: a timer of less than nothing never lets go of the event loop.
    """

    began: float = field(default_factory=time.monotonic)
    """By that clock, seconds."""

    @property
    def time_left(self) -> float:
        """Seconds; never less than a moment."""
        return max(_MOMENT_S, self._left())

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self._left() <= 0

    def _left(self) -> float:
        return self.began + self.timeout - time.monotonic()
