"""Time that neither runs backwards nor leaps, made of a clock that may do both."""

from __future__ import annotations


class Elapsed:
    """Seconds passed, by a clock that is only trusted from one look to the next.

    A clock set back stands still for once; a leap counts as `leap_s` at most, so that a
    suspended machine ends a wait but not a day's worth of waits.

    >>> elapsed = Elapsed(leap_s=60)
    >>> [elapsed.at(t) for t in (100.0, 101.0, 50.0, 52.0, 9e9)]
    [0.0, 1.0, 1.0, 3.0, 63.0]
    """

    def __init__(self, leap_s: float) -> None:
        self.leap_s = leap_s
        self._last: float | None = None
        self.seconds = 0.0

    def at(self, t: float) -> float:
        """The seconds passed when the clock says `t`."""
        last, self._last = self._last, t
        if last is not None and t > last:
            self.seconds += min(t - last, self.leap_s)
        return self.seconds
