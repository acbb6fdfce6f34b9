"""The operator's k."""

from __future__ import annotations

from specdeck.engine.policy.parameters import whole
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import Decision, everywhere


class Fixed:
    """Answers the same k at every step.

    >>> Fixed(3, k_max=5).decision.k(8)
    3
    """

    visits_zero = False

    def __init__(self, k: int, *, k_max: int) -> None:
        whole("k", k, 0, k_max)
        self.decision = everywhere(k)

    def step(self, step: Step, *, steering: bool = True) -> Decision:
        """The operator's k, whatever was step."""
        return self.decision

    def speculating(self, requests: int) -> int:
        """The k to try where target-only is in force; 0 when the operator's k is."""
        return self.decision.table[0]

    def choice(self, here: int) -> int:
        """Its k at the batch sizes of the bucket `here`, whatever is being tried."""
        return self.decision.table[here]
