"""The policy and its breaker, driven together: one call for each step of the engine."""

from __future__ import annotations

from typing import Protocol

from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.decision import Decision, everywhere
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.meter import Meter
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.tuning.ledger import Ledger

_AUDIT_STEPS = 8
_AUDIT_S = 5.0


class Policy(Protocol):
    """What chooses k."""

    decision: Decision
    """The k's for the next step."""

    def step(self, seen: StepSeen, *, steering: bool = True) -> Decision:
        """The k's after a step; `steering` is False while another hand is on k."""

    def speculating(self, requests: int) -> int:
        """The k to try where target-only is in force."""


class Pilot:
    """What the plugin calls before each step it schedules, once for each finished one.

    `breaker` None leaves the policy alone. With a breaker, and a policy that never visits
    k = 0 itself, target-only is measured for eight steps in every five seconds: no loss
    could be found without it.
    """

    def __init__(
        self,
        policy: Policy,
        experience: Experience,
        *,
        breaker: Breaker | None,
        visits_zero: bool,
        zero: bool = True,
    ) -> None:
        self.experience = experience
        self.breaker = breaker if zero else None
        """None where the method cannot skip a round: `zero` says whether it can."""
        self.ledger = Ledger()
        self.policy = policy
        self._zero = everywhere(0)
        self._meter = Meter(experience)
        self._bypasses = visits_zero
        self._audits = breaker is not None and zero and not visits_zero
        self._audit_left = 0
        self._entered_at = 0.0
        self._trying = everywhere(1)
        self.decision = policy.decision

    def step(self, seen: StepSeen) -> Decision:
        """The k's for the next step: the same object as long as nothing changes."""
        known, breaker = self.experience, self.breaker
        known.add(seen)
        self._meter.add(seen)
        if known.closed and known.now - self._entered_at >= 1.0:
            self._enter()
        steering = breaker is None or (breaker.state == "closed" and not self._audit_left)
        chosen = self.policy.step(seen, steering=steering)
        if breaker is None:
            self.decision = chosen
            return chosen
        bypassed = self._bypasses and not chosen.probing and chosen.k(seen.requests) == 0
        breaker.step(seen, bypassed=bypassed)
        if breaker.state != "closed":
            self._audit_left = 0
            self.decision = self._bypass(seen, breaker)
        else:
            self.decision = self._zero if self._audits and self._audit(seen) else chosen
        return self.decision

    def _bypass(self, seen: StepSeen, breaker: Breaker) -> Decision:
        """Target-only, or the k of the half-open breaker's bursts."""
        if not breaker.speculates:
            return self._zero
        if self.decision is not self._trying:
            k = self.policy.speculating(seen.requests)
            if self._trying.table[0] != k:
                self._trying = everywhere(k)
        return self._trying

    def _audit(self, seen: StepSeen) -> bool:
        """Whether the next step measures target-only."""
        if self._audit_left:
            self._audit_left -= 1
        elif self.experience.closed:
            times, here = self.experience.times, self.experience.bucket
            last = times.last(here, 0)
            if last is None or self.experience.now - last >= _AUDIT_S:
                self._audit_left = _AUDIT_STEPS
        return self._audit_left > 0

    def _enter(self) -> None:
        """Enters the last second into the ledger."""
        evidence, self._entered_at = self._meter.evidence(), self.experience.now
        self._meter.clear()
        if evidence.speculating_s:
            self.ledger.add(
                self.experience.now,
                saved_s=evidence.saved_s,
                speculating_s=evidence.speculating_s,
            )
