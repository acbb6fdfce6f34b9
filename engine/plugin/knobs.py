"""What an operator can set on an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdeck.engine.control.protocol import Fallback, Mode, Policy


@dataclass(frozen=True, slots=True)
class Knobs:
    """What an operator has set."""

    k: int
    mode: Mode = "speculate"
    fallback: Fallback = "warm"
    policy: Policy = "fixed"

    @property
    def live_k(self) -> int:
        """The k that the scheduler is to be told."""
        return 0 if self.mode == "target-only" else self.k

    @property
    def cold(self) -> bool:
        """Whether the drafter is to be left out."""
        return self.mode == "target-only" and self.fallback == "cold"

    def live(self) -> dict[str, Any]:
        """What the serving path depends on: how target-only is kept matters only in it."""
        fallback = self.fallback if self.mode == "target-only" else None
        chosen = self.mode == "speculate" and self.policy != "fixed"
        k = None if chosen else self.live_k
        return {"k": k, "mode": self.mode, "fallback": fallback, "policy": self.policy}

    def picked(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """The knobs called `names`, for a reply."""
        return {name: getattr(self, name) for name in names}

    def spelled(self) -> dict[str, Any]:
        """Every knob by its name."""
        return {name: getattr(self, name) for name in ("k", "mode", "fallback", "policy")}
