"""Tries of another k: a few steps at a time, paid from a budget of lost output."""

from __future__ import annotations

from dataclasses import dataclass

_SWITCH = 0.03
"""What a try costs at least, as a share of its steps: the step that changes k is mixed."""
_RESERVE_STEPS = 250
"""The output that may be saved up for tries, in steps' worth of the budget's share."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A try that is under way."""

    bucket: int
    k: int


class Prober:
    """Whether a try may start, and when it ends.

    `share` is the part of the output that tries may cost: a try that is expected to lose a
    third over eight steps is paid back in 270 steps at 1 %.

    >>> prober = Prober(share=0.01, steps=8)
    >>> prober.start(0, 3, loss=0.0)
    True
    >>> [prober.running(0, steps) is not None for steps in (4, 4)]
    [True, False]
    """

    def __init__(self, share: float, steps: int) -> None:
        self._share = share
        self._steps = steps
        self._budget = share * _RESERVE_STEPS
        self._left = 0
        self._probe: Probe | None = None

    def earn(self, steps: int) -> None:
        """Puts the share of so many steps into the budget."""
        self._budget = min(self._budget + self._share * steps, self._share * _RESERVE_STEPS)

    def start(self, bucket: int, k: int, loss: float) -> bool:
        """Begins a try that loses `loss` of a step's output in each step, if that can be paid.

        One that is expected to gain, a negative loss, costs nothing.
        """
        if self._probe is not None or not self._share:
            return False
        if not self.affords(loss):
            return False
        self._budget -= self._cost(loss)
        self._probe, self._left = Probe(bucket, k), self._steps
        return True

    def affords(self, loss: float) -> bool:
        """Whether a try that loses `loss` of a step's output in each step can be paid."""
        return self._budget > 0 or not self._cost(loss)

    def _cost(self, loss: float) -> float:
        return self._steps * max(0.0, loss + _SWITCH)

    def running(self, bucket: int, steps: int) -> Probe | None:
        """The try under way after `steps` more; one ends early when the batch moves away."""
        if self._probe is None:
            return None
        self._left -= steps
        if self._left <= 0 or self._probe.bucket != bucket:
            self._probe = None
        return self._probe

    def stop(self) -> None:
        """Ends the try under way."""
        self._probe = None
