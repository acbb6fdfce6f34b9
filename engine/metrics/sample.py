"""What one metrics page says: absolute counts at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram as Prometheus publishes it."""

    bounds: tuple[float, ...]
    """Upper bounds, rising; the last one is infinite."""
    counts: tuple[float, ...]
    """Observations at or below each bound; never falls along the bounds."""


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

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None

    ttft: Histogram | None = None
    itl: Histogram | None = None

    @property
    def k_max(self) -> int | None:
        """num_speculative_tokens: vLLM publishes one position series for each; None without."""
        return len(self.accepted_per_position) if self.accepted_per_position else None
