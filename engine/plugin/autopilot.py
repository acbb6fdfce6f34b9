"""The policies of `engine.policy` on a live engine: a record in, a table of k's out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from specdeck.engine.control.protocol import ORCHESTRATION_VARIABLE
from specdeck.engine.control.protocol import Breaker as BreakerState
from specdeck.engine.policy import parameters
from specdeck.engine.policy.breaker import Breaker
from specdeck.engine.policy.decision import Decision
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.goodput import Goodput
from specdeck.engine.policy.observed import Observer
from specdeck.engine.policy.pilot import Pilot, Policy
from specdeck.engine.policy.threshold import Threshold

Chooser = Literal["threshold", "goodput"]


class Autopilot:
    """Chooses k for one engine with one policy, and bypasses speculation that does not pay.

    What it learned of the engine outlives a change of policy.
    """

    def __init__(
        self,
        chooser: Chooser,
        *,
        k: int,
        k_max: int,
        zero: bool,
        asynchronous: bool,
        orchestration: Mapping[str, Any],
    ) -> None:
        """`zero` says whether the engine can skip a round; raises ParameterError."""
        self._orchestration = orchestration
        experience = Experience(k_max)
        self._observer = Observer(settle=2 if asynchronous else 1)
        self._pilot = Pilot(
            _policy(chooser, experience, k=max(k, 1), orchestration=orchestration),
            experience,
            breaker=Breaker(_breaker(orchestration), experience),
            zero=zero,
        )

    def follow(self, chooser: Chooser, *, k: int) -> None:
        """Lets another policy choose, from `k` on; raises ParameterError."""
        known = self._pilot.experience
        policy = _policy(chooser, known, k=max(k, 1), orchestration=self._orchestration)
        self._pilot.follow(policy)

    @property
    def decision(self) -> Decision:
        """The k's in force."""
        return self._pilot.decision

    @property
    def breaker(self) -> BreakerState:
        """Whether speculation is bypassed."""
        return self._pilot.breaker.state if self._pilot.breaker else "closed"

    @property
    def reason(self) -> str | None:
        """Why k is what it is, in words; None as long as nothing moved."""
        breaker = self._pilot.breaker
        if breaker is not None and breaker.state != "closed":
            return breaker.view().reason
        return self._pilot.policy.decision.reason

    def step(self, record: Mapping[str, Any]) -> Decision | None:
        """The k's for the next step; None when they stay as they are."""
        before = self._pilot.decision
        after = self._pilot.step(self._observer.see(record))
        return None if after is before else after


def _policy(
    chooser: Chooser, experience: Experience, *, k: int, orchestration: Mapping[str, Any]
) -> Policy:
    if chooser == "goodput":
        # The shortest draft bounds drafting; target-only must stay among the choices.
        bounds = {
            name: value for name, value in orchestration.items() if name != "min_draft_length"
        }
        return Goodput(_given(parameters.Goodput, bounds), experience, k=k)
    rule = _given(parameters.Threshold, {"initial_draft_length": k, **orchestration})
    return Threshold(rule, k_max=experience.k_max)


def _breaker(orchestration: Mapping[str, Any]) -> parameters.Breaker:
    """The breaker's parameters under the names that the config has for them."""
    spelled = {
        "windows": "fallback_after_low_acceptance",
        "acceptance_floor": "draft_acceptance_threshold",
    }
    given = {ours: orchestration[name] for ours, name in spelled.items() if name in orchestration}
    return parameters.parameters(parameters.Breaker, given)


def _given(cls: type[Any], orchestration: Mapping[str, Any]) -> Any:
    """The parameters of a policy, with those of the config that it knows."""
    known = {field.name for field in fields(cls)}
    return parameters.parameters(
        cls, {name: value for name, value in orchestration.items() if name in known}
    )


def orchestration(environment: Mapping[str, str]) -> dict[str, Any]:
    """The config's `orchestration` block as the launcher handed it over.

    >>> orchestration({"SPECDECK_ORCHESTRATION": '{"min_draft_length": 2}'})
    {'min_draft_length': 2}
    >>> orchestration({})
    {}
    """
    found = json.loads(environment.get(ORCHESTRATION_VARIABLE) or "{}")
    return found if isinstance(found, dict) else {}
