"""One step of an engine's scheduler, from the recorder to the policies and onto the wire."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, NamedTuple, Self

from specdeck.engine.protocol.codec import Count, DraftLength, Within, read_record


class Step(NamedTuple):
    """One step that was scheduled, run and accounted for.

    A step verifies the drafts that the step before it made, and makes its own: its
    `accepted` belongs to `verified`, its `k` to the step after it. A named tuple since
    one is made at every step of the engine.
    """

    step: Count
    """Its number, counted from when the plugin took hold."""
    t: Annotated[float, Within(0.0, 1e11)]
    """Monotonic seconds at the end of the step, in the engine's process."""
    requests: Annotated[int, Within(1, 2**53)]
    """Requests in the step: the batch size that vLLM looks k up by."""
    tokens: Count
    """Tokens scheduled."""
    k: DraftLength
    """Tokens that each draft made in this step was to have."""
    drafts: Count
    """Drafts verified, of requests without a k of their own."""
    drafted: Count
    """Tokens verified."""
    accepted: Count
    """Tokens accepted, of those."""
    seconds: Annotated[float, Within(0.0, 1e6)] | None
    """What the step took, wall time, between two steps of a busy engine; None when unknown."""
    committed: Count
    """Tokens handed to the requests."""
    accepted_per_position: tuple[Count, ...] = ()
    """Drafts whose token at each position was accepted."""
    prefill: Count = 0
    """Prompt tokens computed in the step; 0 in a step that only decodes."""
    verified: DraftLength = 0
    """Tokens that each draft verified in this step was to have: the k of the step before."""
    settled: bool = False
    """Whether k has been the same for so long that `seconds` is what this k costs."""
    absent: Count = 0
    """Of the requests, those that were handed no token: their prompts are being computed, or their
    clients have gone."""
    pinned: Count = 0
    """Of the requests that were handed tokens, those with a k of their own: they choose for nobody
    else, and no draft of theirs is among those above."""
    pinned_tokens: Count = 0
    """Tokens handed to them, which are among the `committed`."""

    @property
    def as_steps(self) -> float:
        """How many steps target-only would have taken for its tokens, of requests without a k of
        their own.

        >>> Step(1, 0.0, 2, 8, 3, 2, 6, 3, 0.01, 5).as_steps
        2.5
        >>> Step(1, 0.0, 4, 8, 3, 2, 6, 3, 0.01, 8, pinned=2, pinned_tokens=3).as_steps
        2.5
        """
        alone = self.alone
        return (self.committed - self.pinned_tokens) / alone if alone > 0 else 1.0

    @property
    def alone(self) -> int:
        """The tokens that it would have had without drafts, of the same."""
        if self.prefill:  # a request whose prompt is computed has no draft
            return self.committed - self.pinned_tokens - self.accepted
        return self.requests - self.absent - self.pinned

    @property
    def tells_gain(self) -> bool:
        """Whether it says anything of what drafts gain: not where nobody who may draft is left in
        it. One of prompts alone is as good as one without drafts."""
        return self.alone > 0 or bool(self.prefill and not self.pinned)

    def as_json(self) -> dict[str, Any]:
        """The step for the wire; what follows from the order of steps is left to the reader."""
        found = self._asdict()
        del found["verified"], found["settled"]
        for name in ("absent", "pinned", "pinned_tokens"):  # that hardly any step has
            if not found[name]:
                del found[name]
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The step that a plugin sent; raises WrongType on nonsense.

        >>> step = Step(1, 9.0, 2, 8, 3, 2, 6, 3, 0.02, 5, (2, 1, 0))
        >>> Step.from_json({**step.as_json(), "from_a_newer_plugin": 1}) == step
        True
        """
        step = read_record(cls, {"accepted": 0, **data})
        told = "accepted" in data
        return step if told else step._replace(accepted=sum(step.accepted_per_position))


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
