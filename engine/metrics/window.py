"""The work an engine did between two samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from specdeck.engine.metrics.sample import Histogram, Sample


@dataclass(frozen=True, slots=True)
class Window:
    """Differences of counters over one stretch of time; None is not known.

    Definitions are vLLM's own (vllm/v1/spec_decode/metrics.py).

    >>> window = Window(seconds=2.0, generated=175.0, drafts=50.0, drafted=200.0, accepted=125.0)
    >>> window.tokens_per_second, window.acceptance_rate, window.mean_acceptance_length
    (87.5, 0.625, 3.5)
    >>> Window(seconds=2.0, drafts=0.0, drafted=0.0, accepted=0.0).acceptance_rate is None
    True
    """

    seconds: float
    generated: float | None = None
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    drafted_per_position: tuple[float, ...] | None = None
    preemptions: float | None = None
    ttft: Histogram | None = None
    """Observations made in this window only."""
    itl: Histogram | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    cpu_watched: float | None = None
    core_ran: float | None = None
    core_waited: float | None = None
    worker_ran: float | None = None
    worker_waited: float | None = None
    cpu_throttled: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens per second, over all requests."""
        return None if self.generated is None else self.generated / self.seconds

    @property
    def preemptions_per_second(self) -> float | None:
        """Requests pushed out of the KV cache, per second."""
        return None if self.preemptions is None else self.preemptions / self.seconds

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of the prompt tokens looked up that the prefix cache had; None when none were."""
        return _share(self.prefix_hits, self.prefix_queries)

    @property
    def cpu_waiting(self) -> float | None:
        """Share of the time that threads which compute waited for a CPU; a worker's, or the
        engine core's where it is alone."""
        waited = self.core_waited if self.worker_waited is None else self.worker_waited
        return _share(waited, self.cpu_watched)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def draft_tokens_per_draft(self) -> float | None:
        """The observed k; None when nothing was drafted."""
        return _ratio(self.drafted, self.drafts)

    @property
    def tells_drafts(self) -> bool:
        """Whether it is known how much was drafted, be it nothing."""
        return self.drafts == 0 or None not in (self.drafts, self.drafted)

    @property
    def observed_k(self) -> float | None:
        """Draft tokens per draft, and 0 where tokens came without drafts.

        A page that does not count drafts is no proof that there are none, and neither are the
        first tokens of requests, which come from no draft.

        >>> Window(1.0, generated=9.0, drafts=0.0).observed_k, Window(1.0, generated=9.0).observed_k
        (0.0, None)
        >>> first = Histogram((0.1, math.inf), (0.0, 9.0))
        >>> Window(1.0, generated=9.0, drafts=0.0, ttft=first).observed_k is None
        True
        """
        starts = 0.0 if self.ttft is None else self.ttft.total
        if self.drafts == 0 and self.generated and self.generated > starts:
            return 0.0
        return self.draft_tokens_per_draft

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens a round commits on average, the bonus token included."""
        ratio = _ratio(self.accepted, self.drafts)
        return None if ratio is None else 1 + ratio

    @property
    def output_from_drafts(self) -> float | None:
        """Share of the generated tokens that a draft had proposed; None when idle."""
        return _share(self.accepted, self.generated)

    @property
    def acceptance_per_position(self) -> tuple[float | None, ...] | None:
        """Accepted over drafted at each position.

        Without the plugin's counter of drafts that *had* a position, all drafts are
        the denominator: exact while k stands still, too low for deep positions while
        it moves.
        """
        if self.accepted_per_position is None:
            return None
        drafted = self.drafted_per_position
        if drafted is None:
            return tuple(_ratio(count, self.drafts) for count in self.accepted_per_position)
        return tuple(map(_share, self.accepted_per_position, drafted))


def between(older: Sample, newer: Sample) -> Window | None:
    """The window from `older` to `newer`, or None across an engine restart.

    A counter that fell can only mean a new process, and a difference taken over two
    lives of an engine is not a rate of anything. None as well when no time passed, or
    when the two speak of different models or numbers of data-parallel engines.
    """
    seconds = newer.at - older.at
    if not seconds > 0 or _others(older, newer) or has_restarted(older, newer):
        return None
    deltas: dict[str, Any] = {
        name: _difference(getattr(older, name), getattr(newer, name)) for name in _COUNTED
    }
    return Window(seconds=seconds, **deltas)


def has_restarted(older: Sample, newer: Sample) -> bool:
    """Whether the two samples come from two lives of the engine."""
    start, later_start = older.process_start, newer.process_start
    if start is not None and later_start is not None:
        # The start time is derived from boot time and may wobble by rounding.
        if abs(later_start - start) > 1.0:
            return True
    elif _models(older, newer) > 1:
        return True
    if _others(older, newer):
        return False
    names = (*_COUNTED, "prompt")
    return any(_fell(getattr(older, name), getattr(newer, name)) for name in names)


_COUNTED = tuple(field.name for field in fields(Window) if field.name != "seconds")

_Counted = float | tuple[float, ...] | Histogram | None


def _others(older: Sample, newer: Sample) -> bool:
    """Whether the samples add up other engines than one another: no difference tells anything."""
    return _models(older, newer) > 1 or older.engines != newer.engines


def _models(older: Sample, newer: Sample) -> int:
    return len({older.model, newer.model} - {None})


def _fell(older: _Counted, newer: _Counted) -> bool:
    """Whether any count of `newer` is below `older`'s, or is of another shape.

    k_max and the bounds of a histogram are fixed at start.
    """
    if isinstance(older, Histogram) and isinstance(newer, Histogram):
        return older.bounds != newer.bounds or _fell(older.counts, newer.counts)
    if isinstance(older, tuple) and isinstance(newer, tuple):
        return len(older) != len(newer) or any(map(_fell, older, newer))
    if isinstance(older, int | float) and isinstance(newer, int | float):
        return newer < older
    return False


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _share(part: float | None, whole: float | None) -> float | None:
    """A ratio of two counters that are not raised at one moment, so that it may pass 1."""
    ratio = _ratio(part, whole)
    return None if ratio is None else min(1.0, ratio)


def _difference(older: _Counted, newer: _Counted) -> _Counted:
    """`newer` minus `older` where both are there and are numbers, else None."""
    if isinstance(older, Histogram) and isinstance(newer, Histogram):
        counts = _rises(older.counts, newer.counts)
        return None if counts is None else Histogram(newer.bounds, counts)
    if isinstance(older, tuple) and isinstance(newer, tuple):
        return _rises(older, newer)
    if isinstance(older, int | float) and isinstance(newer, int | float):
        return _finite(newer - older)
    return None


def _rises(older: tuple[float, ...], newer: tuple[float, ...]) -> tuple[float, ...] | None:
    rises = [_finite(after - before) for before, after in zip(older, newer, strict=True)]
    known = tuple(rise for rise in rises if rise is not None)
    return known if len(known) == len(rises) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
