"""Time that does not run backwards, nor leaps where it must not, whatever its clock does."""

from __future__ import annotations

from math import inf


class Elapsed:
    """Seconds passed, by a clock that is only trusted from one look to the next.

    A clock set back stands still for once. With `leap_s` a leap counts as so much at most,
    and a stretch in which nothing happened ends a wait but not a row of waits; the age of a
    thing is counted without it, for an idle night is a night.

    >>> elapsed = Elapsed(leap_s=60)
    >>> [elapsed.at(t) for t in (100.0, 101.0, 50.0, 52.0, 9e9)]
    [0.0, 1.0, 1.0, 3.0, 63.0]
    >>> elapsed = Elapsed()
    >>> [elapsed.at(t) for t in (100.0, 101.0, 50.0, 36050.0)]
    [0.0, 1.0, 1.0, 36001.0]
    """

    def __init__(self, leap_s: float = inf) -> None:
        self.leap_s = leap_s
        self._last: float | None = None
        self.seconds = 0.0

    def at(self, t: float) -> float:
        """The seconds passed when the clock says `t`."""
        last, self._last = self._last, t
        if last is not None and t > last:
            passed = t - last
            self.seconds += passed if passed < self.leap_s else self.leap_s
        return self.seconds
