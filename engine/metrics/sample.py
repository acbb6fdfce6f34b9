"""What one metrics page says: absolute counts at one moment, and their quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram as Prometheus publishes it."""

    bounds: tuple[float, ...]
    """Upper bounds, rising; the last one is infinite."""
    counts: tuple[float, ...]
    """Observations at or below each bound; never falls along the bounds."""

    @property
    def total(self) -> float:
        """All observations."""
        return self.counts[-1] if self.counts else 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The series of one page that specdeck reads; None is a series that was not there."""

    t: float
    """Unix time of the reading, seconds."""
    at: float
    """Monotonic clock at the reading, seconds: rates are taken over this."""

    model: str | None = None
    engines: int = 1
    """Data-parallel engines on the page; their counts are summed."""
    process_start: float | None = None
    """Unix time at which the server's process started."""

    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    drafted_per_position: tuple[float, ...] | None = None
    """Drafts that had a token at each position; published by specdeck's plugin only."""
    generated: float | None = None
    prompt: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    """Prompt tokens that were looked up in the prefix cache."""
    prefix_hits: float | None = None
    """Those that it had."""
    cpu_watched: float | None = None
    """Seconds over which the engine's threads were watched, as all of these; told by specdeck's
    plugin on Linux only."""
    core_ran: float | None = None
    """That the engine core's step thread ran."""
    core_waited: float | None = None
    """That it was ready to run and had no CPU."""
    worker_ran: float | None = None
    """That a worker's busiest thread ran."""
    worker_waited: float | None = None
    """That a thread of it that computes was ready to run and had no CPU."""
    cpu_throttled: float | None = None
    """That a quota kept the engine from running."""

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None

    ttft: Histogram | None = None
    itl: Histogram | None = None

    @property
    def k_max(self) -> int | None:
        """num_speculative_tokens: vLLM publishes one position series for each; None without."""
        return len(self.accepted_per_position) if self.accepted_per_position else None


def quantile(histogram: Histogram, q: float) -> float | None:
    """The value below which the share `q` (0 to 1) of the observations lies.

    Interpolates linearly inside the bucket, from 0 in the first one, as
    `histogram_quantile` does (`bucketQuantile` in prometheus:promql/quantile.go): a
    quantile that falls into the +Inf bucket is the last finite bound. None without
    observations. Raises ValueError for a `q` that is no share.

    >>> half = Histogram(bounds=(1.0, 2.0, math.inf), counts=(10.0, 30.0, 40.0))
    >>> quantile(half, 0.5), quantile(half, 0.99)
    (1.5, 2.0)
    >>> quantile(Histogram((1.0, math.inf), (0.0, 0.0)), 0.5) is None
    True
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    bounds, counts = histogram.bounds, histogram.counts
    if len(counts) < 2 or not counts[-1] > 0 or not math.isinf(bounds[-1]):
        return None
    rank = q * counts[-1]
    last = len(counts) - 1
    bucket = next((i for i in range(last) if counts[i] >= rank), last)
    if bucket == last:
        return bounds[last - 1]
    if bucket == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[bucket - 1], counts[bucket - 1]) if bucket else (0.0, 0.0)
    inside = counts[bucket] - below
    return start + (bounds[bucket] - start) * ((rank - below) / inside if inside else 0.0)
