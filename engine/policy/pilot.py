"""The policy and its breaker, driven together: one call for each step of the engine."""

from __future__ import annotations

from typing import Protocol

from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.decision import Decision, everywhere
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.meter import MEASURED_STEPS
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.tuning.ledger import Ledger

_AUDIT_STEPS = 8
_AUDIT_S = 5.0
_AUDITED_STEPS = 24.0
"""Steps at a batch size before target-only is measured there."""
_AUDIT_SHARE = 0.005
"""The share of the output that audits may cost."""


class Policy(Protocol):
    """What chooses k."""

    decision: Decision
    """The k's for the next step."""
    visits_zero: bool
    """Whether it measures target-only itself."""

    def step(self, seen: StepSeen, *, steering: bool = True) -> Decision:
        """The k's after a step; `steering` is False while another hand is on k."""

    def speculating(self, requests: int) -> int:
        """The k to try where target-only is in force."""

    def bypasses(self, here: int) -> bool:
        """Whether it found that no k pays at the batch sizes of the bucket `here`."""


class Pilot:
    """What the plugin calls before each step it schedules, once for each finished one.

    `breaker` None leaves the policy alone. With a breaker, and a policy that never visits
    k = 0 itself, target-only is measured for eight steps in every five seconds, or less often
    where that would cost much: no loss could be found without it.
    """

    def __init__(
        self,
        policy: Policy,
        experience: Experience,
        *,
        breaker: Breaker | None,
        zero: bool = True,
        automatic: bool = True,
    ) -> None:
        self.experience = experience
        self.breaker = breaker if zero else None
        """None where the method cannot skip a round: `zero` says whether it can."""
        self.automatic = automatic
        """Whether the breaker opens by itself; where not, target-only is not visited either."""
        self.ledger = Ledger()
        self._zero = everywhere(0)
        self._spent = self._as_steps = 0.0
        self._trying = everywhere(1)
        self._tried_at = -1
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Lets `policy` choose from now on; what was learned stays, and so does the breaker."""
        self.policy = policy
        self._audit_left = 0
        self.settle()

    def settle(self) -> None:
        """Has a breaker that was opened or reset by hand take effect at once."""
        bypassed = self.breaker is not None and self.breaker.state != "closed"
        self.decision = self._zero if bypassed else self.policy.decision

    def step(self, seen: StepSeen) -> Decision:
        """The k's for the next step: the same object as long as nothing changes."""
        breaker = self.breaker
        self.watch(seen)
        steering = breaker is None or (breaker.state == "closed" and not self._audit_left)
        chosen = self.policy.step(seen, steering=steering)
        if breaker is None:
            self.decision = chosen
            return chosen
        bypassed = self.policy.bypasses(self.experience.bucket)
        breaker.step(seen, bypassed=bypassed, automatic=self.automatic)
        if breaker.state != "closed":
            self._audit_left = 0
            self.decision = self._bypass(seen, breaker)
        else:
            audited = self.automatic and not self.policy.visits_zero and self._audit()
            self.decision = self._zero if audited else chosen
        return self.decision

    def watch(self, seen: StepSeen) -> None:
        """Learns from a step that another hand steers."""
        known = self.experience
        here = known.bucket
        known.add(seen)
        if known.closed:
            self._enter(here)
        seconds = seen.seconds
        if (seen.k or seen.verified) and seconds is not None and not seen.prefill:
            self._spent += seconds
            self._as_steps += seen.committed / seen.requests

    def _bypass(self, seen: StepSeen, breaker: Breaker) -> Decision:
        """Target-only, or the k of the half-open breaker's bursts."""
        if not breaker.speculates:
            return self._zero
        here = self.experience.bucket
        if self.decision is not self._trying or here != self._tried_at:
            self._tried_at = here
            k = self.policy.speculating(seen.requests)
            if self._trying.table[0] != k:
                self._trying = everywhere(k)
        return self._trying

    def _audit(self) -> bool:
        """Whether the next step measures target-only."""
        if self._audit_left:
            self._audit_left -= 1
        elif self.experience.closed:
            times, here = self.experience.times, self.experience.bucket
            last, k = times.last(here, 0), self.policy.decision.table[here]
            if last is None:  # a batch size that is only passed through is not worth one
                due = times.measured(here, k) >= _AUDITED_STEPS
            else:
                due = self.experience.now - last >= self._audit_wait(here)
            if due:
                self._audit_left = _AUDIT_STEPS
        return self._audit_left > 0

    def _audit_wait(self, here: int) -> float:
        """Seconds between audits: more where they cost more, as speculation is far ahead."""
        known, k = self.experience, self.policy.decision.table[here]
        alone, present = known.times.seconds(here, 0), known.times.seconds(here, k)
        if not (alone and present):
            return _AUDIT_S
        loss = 1 - present / known.acceptance.expected[k] / alone
        return max(_AUDIT_S, _AUDIT_STEPS * alone * loss / _AUDIT_SHARE)

    def _enter(self, here: int) -> None:
        """Enters what the block at the batch sizes `here` came to, if it can be compared."""
        times, spent = self.experience.times, self._spent
        if spent and times.measured(here, 0) >= MEASURED_STEPS:
            worth = self._as_steps * (times.seconds(here, 0) or 0.0)
            self.ledger.add(self.experience.now, saved_s=worth - spent, speculating_s=spent)
        self._spent = self._as_steps = 0.0
