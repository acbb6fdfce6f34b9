"""Runs a policy on one engine: a step in, the table of k's for the next one out.

The policy and its breaker are driven together, and what they learn of the engine outlives
a change of policy.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, Self

from specdeck.engine.policy.breaker import Breaker, Cause
from specdeck.engine.policy.estimates import BLOCK_STEPS, Acceptance, Curve, Estimates
from specdeck.engine.policy.evidence import MEASURED_STEPS
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.ledger import Ledger
from specdeck.engine.policy.parameters import Catalogue, ThresholdParameters, parameters
from specdeck.engine.policy.reason import Move, Opened, Reason
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import Decision, everywhere
from specdeck.engine.policy.threshold import Threshold
from specdeck.engine.protocol.messages import Breaker as BreakerState
from specdeck.engine.protocol.messages import Origin
from specdeck.engine.protocol.messages import Policy as PolicyName

_AUDIT_STEPS = 8
_AUDIT_S = 5.0
_AUDITED_STEPS = 24.0
"""Steps at a batch size before target-only is measured there."""
_AUDIT_SHARE = 0.005
"""The share of the output that audits may cost."""
_MOVES = 50


class Policy(Protocol):
    """What chooses k."""

    decision: Decision
    """The k's for the next step."""
    visits_zero: bool
    """Whether it measures target-only itself."""

    def step(self, step: Step, *, steering: bool = True) -> Decision:
        """The k's after a step; `steering` is False while another hand is on k."""

    def speculating(self, requests: int) -> int:
        """The k to try where target-only is in force."""

    def choice(self, here: int) -> int:
        """Its k at the batch sizes of the bucket `here`, whatever is being tried."""


class PolicyRunner:
    """Observes one engine always; chooses k where a policy is to, and bypasses what does not pay.

    With a breaker, and a policy that never visits k = 0 itself, target-only is measured for
    eight steps in every five seconds, or less often where that would cost much: no loss
    could be found without it.
    """

    def __init__(
        self,
        policy: Policy,
        estimates: Estimates,
        *,
        breaker: Breaker | None,
        zero: bool = True,
        automatic: bool = True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`breaker` None leaves the policy alone, as does a method that cannot skip a round:
        `zero` says whether it can. `wall` gives Unix time, seconds.
        """
        self.estimates = estimates
        self.breaker = breaker or Breaker(Catalogue().breaker, estimates)
        self.guarded = breaker is not None and zero
        """Whether the breaker acts."""
        self.automatic = automatic
        """Whether the breaker opens by itself; where not, target-only is not visited either."""
        self.ledger = Ledger()
        self.curve = Curve()
        self.moves: deque[Move] = deque(maxlen=_MOVES)
        self._skips = zero
        self._wall = wall
        self._catalogue = Catalogue()
        self._name: PolicyName = "fixed"
        self._zero = everywhere(0)
        self._spent = self._as_steps = self._alone = self._prompts = 0.0
        self._trying = everywhere(1)
        self._tried_at = -1
        self._lost = 0
        """The policy's choice when the breaker opened."""
        self.switch(policy)
        self._state: BreakerState = "closed"
        self._why: Reason | None = None
        self._chosen = self.decision.table
        """The policy's or the operator's, whatever is being tried."""

    @classmethod
    def watching(
        cls, catalogue: Catalogue, *, k: int, k_max: int, zero: bool, wall: Callable[[], float]
    ) -> Self:
        """One that leaves k to the operator until it is told to follow a policy."""
        estimates = Estimates(k_max, catalogue.goodput.memory_steps)
        runner = cls(
            Fixed(k, k_max=k_max),
            estimates,
            breaker=Breaker(catalogue.breaker, estimates),
            zero=zero,
            automatic=False,
            wall=wall,
        )
        runner._catalogue = catalogue
        return runner

    def switch(self, policy: Policy) -> None:
        """Lets `policy` choose from now on; what was learned stays, and so does the breaker."""
        self.policy = policy
        self.estimates.block_steps = BLOCK_STEPS  # the policy before may have been looking
        self._audit_left = 0
        self._settle()

    def follow(self, name: PolicyName, *, k: int, catalogue: Catalogue) -> None:
        """Lets a policy choose from now on, or the operator, with these parameters."""
        before, self._catalogue = self._catalogue, catalogue
        held, self._name = self._name, name
        if before.goodput.memory_steps != catalogue.goodput.memory_steps:
            # Windows of another length are filled anew within seconds.
            known = self.estimates
            known.acceptance = Acceptance(known.k_max, catalogue.goodput.memory_steps)
        self.breaker.retune(catalogue.breaker)
        self.automatic = catalogue.breaker.automatic == "always" or (
            catalogue.breaker.automatic == "policy" and name != "fixed"
        )
        same = name != "fixed" and name == held
        if not (same and getattr(before, name) == getattr(catalogue, name)):
            self.switch(self._make(name, k=self._present() if same else k, carry=same))
        by_hand = self.breaker.cause in ("hand", "divergence")
        if self.bypassed and not by_hand and not self.automatic:
            self.breaker.reset()  # nobody wants any more that it opens by itself
            self._settle()
        self._state = self.breaker.state
        self._why = self.policy.decision.reason
        self._chosen = self.policy.decision.table

    def trip(self, cause: Cause, reason: Reason, *, hold: bool) -> None:
        """Opens the breaker from outside, at once."""
        self.breaker.trip(cause, reason, hold=hold)
        self._settle()
        self._state = self.breaker.state

    def reset(self) -> None:
        """Closes the breaker by hand, at once."""
        self.breaker.reset()
        self._settle()
        self._state = self.breaker.state

    @property
    def soft_cost(self) -> float | None:
        """What a step at k = 0 takes longer than one without speculation; None is not known."""
        return self._catalogue.baseline.soft_cost

    @property
    def bypassed(self) -> bool:
        """Whether the breaker has k, and neither the policy nor the operator."""
        return self.breaker.state != "closed"

    @property
    def interrupted(self) -> bool:
        """Whether the k's in force are not the policy's: a breaker, or target-only measured."""
        return self.decision is not self.policy.decision

    @property
    def reason(self) -> Reason | None:
        """Why k is what it is; None as long as nothing moved."""
        return self.breaker.reason if self.bypassed else self.policy.decision.reason

    @property
    def reason_in_words(self) -> str | None:
        """The same as a line, for whoever reads it."""
        reason = self.reason
        return None if reason is None else str(reason)

    @property
    def alarm_in_words(self) -> str | None:
        """That the output may repeat itself; None where it does not seem to."""
        alarm = self.breaker.alarm
        return None if alarm is None else str(alarm)

    def step(self, step: Step, *, steering: bool) -> bool:
        """Learns from a step; whether the k's for the next one, or whose they are, changed.

        While it is not `steering`, another hand is on k.
        """
        before = self.decision
        if steering:
            self.choose(step)
        else:
            self.watch(step)
        self.curve.add(self.estimates.bucket, step)
        if self.decision is before and self.breaker.state == self._state:
            return False
        self._log_choice()
        return True

    def choose(self, step: Step) -> Decision:
        """The k's for the next step: the same object as long as nothing changes."""
        breaker, policy = self.breaker, self.policy
        self.watch(step)
        if not self.guarded:
            self.decision = chosen = policy.step(step, steering=True)
            return chosen
        closed = breaker.state == "closed"
        steering = not self._audit_left if closed else breaker.defers
        chosen = policy.step(step, steering=steering)
        here, visits = policy.choice(self.estimates.bucket), policy.visits_zero
        bypassed = visits and not here
        if closed:
            self._lost = here
        moved = visits and here != self._lost
        breaker.step(step, bypassed=bypassed, automatic=self.automatic, moved=moved)
        if breaker.state != "closed":
            self._audit_left = 0
            self.decision = chosen if breaker.defers else self._bypass(step)
        else:
            audited = self.automatic and not self.policy.visits_zero and self._audit()
            self.decision = self._zero if audited else chosen
        return self.decision

    def watch(self, step: Step) -> None:
        """Learns from a step that another hand steers."""
        known = self.estimates
        here = known.bucket
        known.add(step)
        if known.closed:
            self._enter(here)
        seconds = step.seconds
        if seconds is None or ((step.absent or step.pinned) and not step.tells_gain):
            return
        if step.k or step.verified:
            mean = known.prompts.mean
            self._spent += seconds
            self._as_steps += step.as_steps
            if mean:
                self._prompts += step.prefill - mean
        else:
            self._alone += seconds

    def look(self, t: float) -> None:
        """Has time pass to `t`, for whoever wants to know how old things are."""
        self.estimates.look(t)
        self.breaker.look(t)
        self.curve.look(t)

    def log_move(self, before: int, after: int, reason: Reason, who: str, origin: Origin) -> None:
        """Remembers a move of k."""
        self.moves.append(Move(self._wall(), before, after, reason, who, origin))

    def _settle(self) -> None:
        """Has a breaker that was opened or reset by hand take effect at once."""
        bypassed = self.guarded and self.bypassed
        self.decision = self._zero if bypassed else self.policy.decision

    def _bypass(self, step: Step) -> Decision:
        """Target-only, or the k of the half-open breaker's bursts."""
        if not self.breaker.speculates:
            return self._zero
        here = self.estimates.bucket
        if self.decision is not self._trying or here != self._tried_at:
            self._tried_at = here
            k = self.policy.speculating(step.requests)
            if self._trying.table[0] != k:
                self._trying = everywhere(k)
        return self._trying

    def _audit(self) -> bool:
        """Whether the next step measures target-only."""
        if self._audit_left:
            self._audit_left -= 1
        elif self.estimates.closed:
            times, here = self.estimates.times, self.estimates.bucket
            last, k = times.last(here, 0), self.policy.decision.table[here]
            if last is None:  # a batch size that is only passed through is not worth one
                due = times.steps(here, k) >= _AUDITED_STEPS
            else:
                due = self.estimates.now - last >= self._audit_wait(here)
            if due:
                self._audit_left = _AUDIT_STEPS
        return self._audit_left > 0

    def _audit_wait(self, here: int) -> float:
        """Seconds between audits: more where they cost more, as speculation is far ahead."""
        known, k = self.estimates, self.policy.decision.table[here]
        alone, present = known.cost(here, 0), known.cost(here, k)
        if alone is None or present is None:
            return _AUDIT_S
        loss = 1 - present[0] / known.acceptance.expected[k] / alone[0]
        return max(_AUDIT_S, _AUDIT_STEPS * alone[0] * loss / _AUDIT_SHARE)

    def _enter(self, here: int) -> None:
        """Enters what the block at the batch sizes `here` came to, if it can be compared."""
        known, spent, saved = self.estimates, self._spent, 0.0
        cost = known.cost(here, 0) if spent else None
        if cost and known.times.steps(here, 0) >= MEASURED_STEPS:
            saved = self._as_steps * cost[0] - spent
            if self._prompts:
                saved += self._prompts * known.prompt_cost(here)
        else:
            spent = 0.0
        if spent or self._alone:
            self.ledger.add(
                known.now, saved_s=saved, speculating_s=spent, target_only_s=self._alone
            )
        self._spent = self._as_steps = self._alone = self._prompts = 0.0

    def _log_choice(self) -> None:
        """Remembers why k moved, unless it is a try or a probe."""
        here, state = self.estimates.bucket, self.breaker.state
        if state != self._state:
            before, self._state = self._state, state
            chosen = self._chosen[here]
            if state == "open" and before == "closed":
                self.log_move(chosen, 0, Opened(self.breaker.reason), "breaker", "breaker")
            elif state == "closed":
                why = "breaker closed: speculation gains again"
                self.log_move(0, chosen, why, "breaker", "breaker")
        present = self.policy.decision
        if present.probing or present.reason is self._why:
            return
        before_k, self._chosen, self._why = self._chosen[here], present.table, present.reason
        if present.reason is not None and state == "closed":
            self.log_move(before_k, present.table[here], present.reason, "policy", "policy")

    def _make(self, name: PolicyName, *, k: int, carry: bool) -> Policy:
        known, catalogue = self.estimates, self._catalogue
        if name == "goodput":
            rates = catalogue.goodput
            if not self._skips and rates.min_draft_length < 1:
                rates = replace(rates, min_draft_length=1)
            return Goodput(rates, known, k=max(k, 1))
        if name == "threshold":
            rule = catalogue.threshold
            if carry:  # it goes on from where it is
                rule = parameters(ThresholdParameters, {"initial_draft_length": max(k, 1)}, rule)
            return Threshold(rule, k_max=known.k_max)
        return Fixed(k, k_max=known.k_max)

    def _present(self) -> int:
        return self._chosen[self.estimates.bucket]
