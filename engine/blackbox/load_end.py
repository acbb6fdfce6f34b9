"""The end of the load: where nothing is asked for any more nothing is generated either, and no
engine is slower for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol

from specdeck.engine.metrics.reading import Reading

_IDLE: Final = 0.9
"""Of the readings: a request now and then is no load."""
_FEWEST: Final = 2
"""Readings that tell that nothing is asked for."""
_SERVED: Final = 0.75
"""Of what requests were given before: with less the engine was slower before they were gone."""
_FEW_S: Final = 5.0
"""With requests, of which a few slow moments are a large part."""
_SERVED_FEW: Final = 0.5
"""In place of `_SERVED` there."""


class Read(Protocol):
    """A record of an engine, as far as its requests are counted in it."""

    def readings(self, start: float, end: float) -> Iterator[Reading]:
        """Those of a stretch of time, the oldest first."""


def has_load_ended(history: Read, before: tuple[float, float], after: tuple[float, float]) -> bool:
    """Whether tokens/s are lower in the later of two stretches of time, Unix seconds, only because
    no request ran or waited any more.

    Clients that give up leave an engine that stands still without requests as well: as long as
    there were some they have to be given about as many tokens as before. False where requests are
    not counted. Raises SpecdeckError for a record that cannot be read.
    """
    was, now = (list(history.readings(*stretch)) for stretch in (before, after))
    counted = [found for one in now if (found := count_requests(one)) is not None]
    later = counted[len(counted) // 2 :]
    if len(later) < _FEWEST or sum(not one for one in later) < _IDLE * len(later):
        return False
    if any(later) and not any(one[3] for one in _list_work(now[len(now) // 2 :])):
        return False  # some still come, and are given nothing
    ran = given = 0.0
    for seconds, first, last, generated in _list_work(was):
        ran, given = ran + seconds * (first + last) / 2, given + generated
    if not ran:
        return False
    due = served = asked = 0.0
    for seconds, first, last, generated in _list_work([*was[-1:], *now]):
        asked += seconds if min(first, last) else 0.0
        due, served = due + seconds * min(first, last) * given / ran, served + generated
    return served >= due * (_SERVED if asked >= _FEW_S else _SERVED_FEW)


def count_requests(reading: Reading) -> float | None:
    """Requests that run, or wait where none runs; None where the engine did not tell."""
    sample = reading.sample
    if sample is None or sample.running is None or sample.waiting is None:
        return None
    return sample.running or sample.waiting


def _list_work(readings: Sequence[Reading]) -> Iterator[tuple[float, float, float, float]]:
    """Between each two readings: seconds, requests at both, tokens that were generated."""
    for older, newer in pairwise(readings):
        window, first, last = newer.window, count_requests(older), count_requests(newer)
        if window is None or first is None or last is None or window.generated is None:
            continue
        yield window.seconds, first, last, window.generated
