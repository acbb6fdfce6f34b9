"""What a policy sees of the engine: one value for each step of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_MOST_MISSED = 8
"""Steps without a record after which the k before them is unknown: some have nothing to run."""


class StepSeen(NamedTuple):
    """One step that was scheduled, run and accounted for.

    A step verifies the drafts that the step before it made, and makes its own: its
    `accepted` belongs to `verified`, its `k` to the step after it. A named tuple since
    one is made at every step of the engine.
    """

    t: float
    """Monotonic seconds at the end of the step."""
    requests: int
    """Requests in the step: the batch size that vLLM looks k up by."""
    k: int
    """Tokens that each draft made in this step was to have."""
    verified: int
    """Tokens that each draft verified in this step was to have: the k of the step before."""
    settled: bool
    """Whether k has been the same for so long that `seconds` is what this k costs."""
    seconds: float | None
    """What the step took, wall time, between two steps of a busy engine; None when unknown."""
    committed: int
    """Tokens handed to the requests."""
    drafts: int
    """Drafts verified."""
    drafted: int
    """Tokens verified."""
    accepted: tuple[int, ...]
    """Drafts whose token at each position was accepted."""
    prefill: int
    """Prompt tokens computed in the step; 0 in a step that only decodes."""


class Observer:
    """Makes `StepSeen` of the plugin's records, in the order in which steps were scheduled.

    A record is what the plugin keeps of a step (`control.protocol.Step`) with
    `accepted_per_position`, `seconds`, `committed` and `prefill`. `settle` is the number of
    steps by which the engine's accounting lags behind its scheduling: 1, or 2 where the
    scheduler is asynchronous.

    >>> observer = Observer()
    >>> record = {"step": 1, "t": 9.0, "requests": 2, "tokens": 2, "k": 3, "drafts": 0,
    ...           "drafted": 0, "accepted": 0, "accepted_per_position": (0, 0, 0),
    ...           "seconds": 0.02, "committed": 2, "prefill": 0}
    >>> observer.see(record).verified
    0
    >>> observer.see(record | {"step": 2}).settled
    True
    """

    def __init__(self, settle: int = 1) -> None:
        self._settle = settle
        self._k = 0
        self._same = 0
        self._step: int | None = None

    def see(self, record: Mapping[str, Any]) -> StepSeen:
        """The step of `record`; one that has no `k` before it counts as unsettled."""
        k, step = record["k"], record["step"]
        verified = self._k
        self._same = self._same + 1 if k == verified else 0
        if self._step is not None and not 0 < step - self._step <= _MOST_MISSED:
            verified, self._same = 0, 0  # another hand chose k in between, or another engine ran
        self._k, self._step = k, step
        return StepSeen(
            record["t"],
            record["requests"],
            k,
            verified,
            self._same >= self._settle,
            record["seconds"],
            record["committed"],
            record["drafts"],
            record["drafted"],
            record["accepted_per_position"],
            record["prefill"],
        )
