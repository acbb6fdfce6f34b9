"""The work an engine did between two samples."""

from __future__ import annotations

from dataclasses import dataclass, fields

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

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens per second, over all requests."""
        return None if self.generated is None else self.generated / self.seconds

    @property
    def preemptions_per_second(self) -> float | None:
        """Requests pushed out of the KV cache, per second."""
        return None if self.preemptions is None else self.preemptions / self.seconds

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def draft_tokens_per_draft(self) -> float | None:
        """The observed k; None when nothing was drafted."""
        return _ratio(self.drafted, self.drafts)

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens a round commits on average, the bonus token included."""
        ratio = _ratio(self.accepted, self.drafts)
        return None if ratio is None else 1 + ratio

    @property
    def output_from_drafts(self) -> float | None:
        """Share of the generated tokens that a draft had proposed; None when idle."""
        ratio = _ratio(self.accepted, self.generated)
        # A token can be accepted in one window and counted as generated in the next.
        return None if ratio is None else min(1.0, ratio)

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
        return tuple(map(_ratio, self.accepted_per_position, drafted))


def between(older: Sample, newer: Sample) -> Window | None:
    """The window from `older` to `newer`, or None across an engine restart.

    A counter that fell can only mean a new process, and a difference taken over two
    lives of an engine is not a rate of anything. None as well when no time passed.
    """
    seconds = newer.at - older.at
    if seconds <= 0 or restarted(older, newer):
        return None
    deltas = {
        field.name: _difference(getattr(older, field.name), getattr(newer, field.name))
        for field in fields(Window)
        if field.name != "seconds"
    }
    return Window(seconds=seconds, **deltas)


def restarted(older: Sample, newer: Sample) -> bool:
    """Whether the two samples come from two lives of the engine."""
    starts = older.process_start, newer.process_start
    # The start time is derived from boot time and may wobble by rounding.
    if None not in starts and abs(newer.process_start - older.process_start) > 1.0:  # type: ignore[operator]  # None is excluded above
        return True
    pairs = ((getattr(older, name), getattr(newer, name)) for name in _COUNTERS)
    return any(_fell(before, after) for before, after in pairs)


_COUNTERS = ("generated", "drafts", "drafted", "accepted", "preemptions", "prompt")


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


_Counted = float | tuple[float, ...] | Histogram | None


def _difference(older: _Counted, newer: _Counted) -> _Counted:
    """`newer` minus `older` where both are there and of one shape, else None."""
    if isinstance(older, Histogram) and isinstance(newer, Histogram):
        counts = _difference(older.counts, newer.counts)
        if older.bounds != newer.bounds or not isinstance(counts, tuple):
            return None
        return Histogram(newer.bounds, counts)
    if isinstance(older, tuple) and isinstance(newer, tuple):
        if len(older) != len(newer):
            return None
        return tuple(b - a for a, b in zip(older, newer, strict=True))
    if isinstance(older, int | float) and isinstance(newer, int | float):
        return newer - older
    return None
