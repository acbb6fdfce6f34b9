"""The policies of `engine.policy` on a live engine: a record in, a table of k's out."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from specdeck.engine.control.protocol import ORCHESTRATION_VARIABLE, Origin
from specdeck.engine.control.protocol import Breaker as BreakerState
from specdeck.engine.control.protocol import Policy as PolicyName
from specdeck.engine.control.tuning import KChange
from specdeck.engine.policy.acceptance import Acceptance
from specdeck.engine.policy.breaker import Breaker, Cause
from specdeck.engine.policy.catalogue import Catalogue
from specdeck.engine.policy.curve import Curve
from specdeck.engine.policy.decision import Decision
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.fixed import Fixed
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.observed import Observer, StepSeen
from specdeck.engine.policy.parameters import Threshold as ThresholdParameters
from specdeck.engine.policy.parameters import parameters
from specdeck.engine.policy.pilot import Pilot, Policy
from specdeck.engine.policy.threshold import Threshold
from specdeck.engine.policy.trial import Work

logger = logging.getLogger("vllm.specdeck")

_CHANGES = 50


class Autopilot:
    """Observes one engine always; chooses k where a policy is to, and bypasses what does not pay.

    What it learned of the engine outlives a change of policy.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        k: int,
        k_max: int,
        zero: bool,
        asynchronous: bool,
        wall: Callable[[], float],
    ) -> None:
        """`zero` says whether the engine can skip a round."""
        self._catalogue = catalogue
        self._zero = zero
        self._wall = wall
        self._name: PolicyName = "fixed"
        self._observer = Observer(settle=2 if asynchronous else 1)
        self.experience = Experience(k_max, catalogue.goodput.memory_steps)
        self.breaker = Breaker(catalogue.breaker, self.experience)
        self.pilot = Pilot(
            Fixed(k, k_max=k_max), self.experience, breaker=self.breaker, zero=zero, automatic=False
        )
        self.curve = Curve()
        self.work = Work()
        """Under the present knobs."""
        self.changes: deque[KChange] = deque(maxlen=_CHANGES)
        self._state: BreakerState = "closed"
        self._why: str | None = None
        self._chosen = self.pilot.decision.table
        """The policy's or the operator's, whatever is being tried."""

    def follow(self, name: PolicyName, *, k: int, catalogue: Catalogue) -> None:
        """Lets a policy choose from now on, or the operator, with these parameters."""
        before, self._catalogue = self._catalogue, catalogue
        held, self._name = self._name, name
        if before.goodput.memory_steps != catalogue.goodput.memory_steps:
            # Windows of another length are filled anew within seconds.
            known = self.experience
            known.acceptance = Acceptance(known.k_max, catalogue.goodput.memory_steps)
        self.breaker.retune(catalogue.breaker)
        self.pilot.automatic = catalogue.breaker.automatic == "always" or (
            catalogue.breaker.automatic == "policy" and name != "fixed"
        )
        same = name != "fixed" and name == held
        if not (same and getattr(before, name) == getattr(catalogue, name)):
            self.pilot.follow(self._made(name, k=self._present() if same else k, carry=same))
        by_hand = self.breaker.view().cause in ("hand", "divergence")
        if self.bypassed and not by_hand and not self.pilot.automatic:
            self.breaker.reset()  # nobody wants any more that it opens by itself
            self.pilot.settle()
        self._state = self.breaker.state
        self._why = self.pilot.policy.decision.reason
        self._chosen = self.pilot.policy.decision.table

    def trip(self, cause: Cause, reason: str, *, hold: bool) -> None:
        """Opens the breaker from outside, at once."""
        self.breaker.trip(cause, reason, hold=hold)
        self.pilot.settle()
        self._state = self.breaker.state

    def reset(self) -> None:
        """Closes the breaker by hand, at once."""
        self.breaker.reset()
        self.pilot.settle()
        self._state = self.breaker.state

    @property
    def decision(self) -> Decision:
        """The k's in force."""
        return self.pilot.decision

    @property
    def bypassed(self) -> bool:
        """Whether the breaker has k, and neither the policy nor the operator."""
        return self.breaker.state != "closed"

    @property
    def interrupted(self) -> bool:
        """Whether the k's in force are not the policy's: a breaker, or target-only measured."""
        return self.pilot.decision is not self.pilot.policy.decision

    @property
    def reason(self) -> str | None:
        """Why k is what it is, in words; None as long as nothing moved."""
        if self.bypassed:
            return self.breaker.view().reason
        return self.pilot.policy.decision.reason

    def see(self, record: Mapping[str, Any]) -> StepSeen:
        """The step of a record."""
        seen = self._observer.see(record)
        self.work.add(seen)
        return seen

    def step(self, seen: StepSeen, *, steering: bool) -> bool:
        """Learns from a step; whether the k's for the next one, or whose they are, changed."""
        pilot = self.pilot
        before = pilot.decision
        if steering:
            pilot.step(seen)
        else:
            pilot.watch(seen)
        self.curve.add(self.experience.bucket, seen)
        if pilot.decision is before and self.breaker.state == self._state:
            return False
        self._take_down(seen)
        return True

    def look(self, t: float) -> None:
        """Has time pass to `t`, for whoever wants to know how old things are."""
        self.experience.look(t)
        self.breaker.look(t)
        self.curve.look(t)
        self.work.look(t)

    def note(self, before: int, after: int, reason: str, who: str, origin: Origin) -> None:
        """Remembers a move of k that somebody else made."""
        self.changes.append(KChange(self._wall(), before, after, reason, who, origin))

    def _take_down(self, seen: StepSeen) -> None:
        """Remembers why k moved, unless it is a try or a probe."""
        here, state = self.experience.bucket, self.breaker.state
        if state != self._state:
            before, self._state = self._state, state
            chosen = self._chosen[here]
            words = self.breaker.view().reason or ""
            if state == "open" and before == "closed":
                self.note(chosen, 0, f"breaker opened: {words}", "breaker", "breaker")
            elif state == "closed":
                self.note(0, chosen, "breaker closed: probes gained again", "breaker", "breaker")
        why = self.pilot.policy.decision
        if why.probing or why.reason == self._why:
            return
        before_k, self._chosen, self._why = self._chosen[here], why.table, why.reason
        if why.reason is not None and state == "closed":
            self.note(before_k, why.table[here], why.reason, "policy", "policy")

    def _made(self, name: PolicyName, *, k: int, carry: bool) -> Policy:
        known, catalogue = self.experience, self._catalogue
        if name == "goodput":
            rates = catalogue.goodput
            if not self._zero and rates.min_draft_length < 1:
                rates = replace(rates, min_draft_length=1)
            return Goodput(rates, known, k=max(k, 1))
        if name == "threshold":
            rule = catalogue.threshold
            if carry:  # it goes on from where it is
                rule = parameters(ThresholdParameters, {"initial_draft_length": max(k, 1)}, rule)
            return Threshold(rule, k_max=known.k_max)
        return Fixed(k, k_max=known.k_max)

    def _present(self) -> int:
        return self._chosen[self.experience.bucket]


def orchestration(environment: Mapping[str, str]) -> dict[str, Any]:
    """The config's `orchestration` block as the launcher handed it over.

    >>> orchestration({"SPECDECK_ORCHESTRATION": '{"min_draft_length": 2}'})
    {'min_draft_length': 2}
    >>> orchestration({}), orchestration({"SPECDECK_ORCHESTRATION": "{"})
    ({}, {})
    """
    try:
        found = json.loads(environment.get(ORCHESTRATION_VARIABLE) or "{}")
    except ValueError:
        logger.warning("%s is not JSON: every parameter has its default", ORCHESTRATION_VARIABLE)
        return {}
    return found if isinstance(found, dict) else {}
