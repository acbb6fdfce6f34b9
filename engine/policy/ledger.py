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
    SavedTime(saved_s=-0.05, speculating_s=1.0, target_only_s=0.0)
    >>> ledger.over(86400.0, now=5000.0)
    SavedTime(saved_s=0.2, speculating_s=2.0, target_only_s=0.0)
    """

    def __init__(self) -> None:
        self._minutes: deque[list[float]] = deque(maxlen=DAY_MINUTES + 1)

    def add(
        self, now: float, *, saved_s: float, speculating_s: float, target_only_s: float = 0.0
    ) -> None:
        """Enters what a stretch that ended at `now`, seconds of any steady clock, came to.

        `saved_s` is against soft k = 0, at which `target_only_s` were spent.
        """
        minute = now // _MINUTE
        last = self._minutes[-1] if self._minutes else None
        if last is None or minute > last[0]:  # a clock set back goes on in the last minute
            last = [minute, 0.0, 0.0, 0.0]
            self._minutes.append(last)
        last[1] += saved_s
        last[2] += speculating_s
        last[3] += target_only_s

    def over(self, seconds: float, *, now: float, soft_cost: float | None = None) -> SavedTime:
        """The sum over the last `seconds`, in whole minutes.

        Against soft k = 0 or, where it is known what a step at k = 0 takes longer than one of
        an engine without speculation, against such an engine. Beside that one the time at
        k = 0 is lost in part as well: all of it would have been 1 / (1 + `soft_cost`) as long.
        """
        first = (now - seconds) // _MINUTE
        within = [entry for entry in self._minutes if entry[0] > first]
        saved, speculating, alone = (sum(entry[i] for entry in within) for i in (1, 2, 3))
        if soft_cost is None:
            return SavedTime(saved, speculating)
        soft = saved + speculating + alone
        return SavedTime(soft / (1 + soft_cost) - speculating - alone, speculating, alone)
