"""Three poor rounds shorten the draft to 75 %, a good one lengthens it by one."""

from __future__ import annotations

from math import floor

from specdeck.engine.policy.parameters import ThresholdParameters, whole
from specdeck.engine.policy.reason import Rounds
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import Decision, everywhere

_SHORTENED = 0.75


class Threshold:
    """The rule of thumb for a single stream, over the batch of an engine.

    A round is one step in which drafts were verified, and its acceptance is accepted over
    drafted tokens of all requests in it: one k serves the whole batch, so the batch gives
    one verdict. A step that verified nothing is no round. Cost plays no part in it.

    >>> from specdeck.engine.policy.step import Step
    >>> def round(accepted):
    ...     return Step(0, 0.0, 1, 7, 6, 1, 6, accepted, 0.02, accepted + 1)
    >>> rule = Threshold(ThresholdParameters(initial_draft_length=6), k_max=8)
    >>> [rule.step(round(accepted)).k(1) for accepted in (1, 1, 1, 6, 6, 6, 6, 6)]
    [6, 6, 4, 5, 6, 7, 8, 8]
    """

    visits_zero = False

    def __init__(self, parameters: ThresholdParameters, *, k_max: int) -> None:
        whole("k_max", k_max, 1)
        self.parameters = parameters
        self._low = min(parameters.min_draft_length, k_max)
        self._high = min(parameters.max_draft_length, k_max)
        self._poor = 0
        k = min(max(parameters.initial_draft_length, self._low), self._high)
        self._k = k
        self.decision = everywhere(k)

    def step(self, step: Step, *, steering: bool = True) -> Decision:
        """The k after a step; while it is not `steering`, k stays and rounds do not count."""
        if step.drafted <= 0 or not steering:
            return self.decision
        acceptance = step.accepted / step.drafted
        if acceptance < self.parameters.draft_acceptance_threshold:
            self._poor += 1
            if self._poor >= self.parameters.fallback_after_low_acceptance:
                self._turn(max(self._low, floor(self._k * _SHORTENED)), acceptance, self._poor)
                self._poor = 0
        else:
            self._poor = 0
            self._turn(min(self._high, self._k + 1), acceptance, 1)
        return self.decision

    def speculating(self, requests: int) -> int:
        """The k to try where target-only is in force."""
        return self._k

    def choice(self, here: int) -> int:
        """Its k at the batch sizes of the bucket `here`, whatever is being tried."""
        return self._k

    def _turn(self, k: int, acceptance: float, rounds: int) -> None:
        if k == self._k:
            return
        limit = self.parameters.draft_acceptance_threshold
        self.decision = everywhere(k, reason=Rounds(self._k, k, rounds, limit, acceptance))
        self._k = k
