"""Seconds of engine time that speculation saved or lost, by the minute."""

from __future__ import annotations

from collections import deque

from specdeck.engine.protocol.tuning import SavedTime

_MINUTE = 60.0
DAY_MINUTES = 24 * 60


class Ledger:
    """Keeps a day of minutes.

    >>> ledger = Ledger()
    >>> ledger.add(1000.0, saved_s=0.25, speculating_s=1.0)
    >>> ledger.add(5000.0, saved_s=-0.05, speculating_s=1.0)
    >>> ledger.over(3600.0, now=5000.0)
    SavedTime(saved_s=-0.05, speculating_s=1.0)
    >>> ledger.over(86400.0, now=5000.0)
    SavedTime(saved_s=0.2, speculating_s=2.0)
    """

    def __init__(self) -> None:
        self._minutes: deque[list[float]] = deque(maxlen=DAY_MINUTES + 1)

    def add(self, now: float, *, saved_s: float, speculating_s: float) -> None:
        """Enters what a stretch that ended at `now`, seconds of any steady clock, came to."""
        minute = now // _MINUTE
        last = self._minutes[-1] if self._minutes else None
        if last is None or minute > last[0]:  # a clock set back goes on in the last minute
            last = [minute, 0.0, 0.0]
            self._minutes.append(last)
        last[1] += saved_s
        last[2] += speculating_s

    def over(self, seconds: float, *, now: float) -> SavedTime:
        """The sum over the last `seconds`, in whole minutes."""
        first = (now - seconds) // _MINUTE
        within = [entry for entry in self._minutes if entry[0] > first]
        return SavedTime(sum(entry[1] for entry in within), sum(entry[2] for entry in within))
