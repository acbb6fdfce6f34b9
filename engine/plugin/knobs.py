"""What an operator has set of one engine: k, mode, fallback, policy and its parameters.

Which k the scheduler is told under them, and whether the drafter is left out, follows from them
alone; `steering` brings it about, and lets the policy and the breaker have their say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from specdeck.engine.protocol.messages import (
    Change,
    Fallback,
    Mode,
    Origin,
    Policy,
    Value,
    with_implied_policy,
)

_OWN = ("k", "mode", "fallback", "policy")


@dataclass(frozen=True, slots=True)
class Knobs:
    """What an operator has set; the breaker is none of them, since it moves by itself too."""

    k: int
    mode: Mode = "speculate"
    fallback: Fallback = "warm"
    policy: Policy = "fixed"
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """Those that were set since the start, by dotted name."""
    scheduled: bool = False
    """Whether the configured k by batch size is in force, which any k replaces."""

    def with_change(self, change: Change) -> Self:
        """These with what `change` asks for; a k without a policy ends the policy."""
        own = {name: value for name in _OWN if (value := getattr(change, name)) is not None}
        asked = with_implied_policy(own)
        parameters = {**self.parameters, **(change.parameters or {})}
        scheduled = self.scheduled and not {"k", "mode", "policy"} & set(asked)
        return replace(self, parameters=parameters, scheduled=scheduled, **asked)

    @property
    def live_k(self) -> int:
        """The k that the scheduler is to be told."""
        return 0 if self.mode == "target-only" else self.k

    @property
    def cold(self) -> bool:
        """Whether the drafter is to be left out."""
        return self.mode == "target-only" and self.fallback == "cold"

    def live_facts(self, breaker: str) -> dict[str, Any]:
        """What the serving path depends on: how target-only is kept matters only in it."""
        if self.mode == "target-only":
            return {"k": 0, "mode": self.mode, "fallback": self.fallback, "policy": self.policy}
        k: object = self.k if self.policy == "fixed" else None
        if self.scheduled:
            k = "by batch size"
        if breaker == "closed":
            return {"k": k, "mode": self.mode, "fallback": None, "policy": self.policy}
        k = 0 if breaker == "open" else None
        own = {"mode": self.mode, "fallback": None, "policy": self.policy, "breaker": breaker}
        return {"k": k, **own}

    def as_dict(self) -> dict[str, Any]:
        """Every knob by its name."""
        own = {name: getattr(self, name) for name in _OWN}
        return {**own, **self.parameters}


class Turn(Protocol):
    """Makes knobs the engine's; what there is to say of it."""

    def __call__(
        self, knobs: Knobs, *, who: str, reason: str | None, origin: Origin
    ) -> tuple[str, ...]:
        """`who` asked for it; `origin` is a trial's."""
