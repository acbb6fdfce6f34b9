"""Which k's a sweep visits, how often, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdeck.engine.control.protocol import EngineState

SETTLE_S = 0.25
"""After a change, before anything is counted: drafts of before are verified, batches refill."""
VISIT_S = 1.2
"""A whole visit, where the time allows it: more rounds tell more than longer ones."""
LEAST_S = 0.4
"""Measured in a visit at least."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 12
"""Fewer give no interval worth the name."""
LEASE_S = 8.0
"""Seconds after which the engine takes the sweep's k back when nobody renews it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A sweep, before it begins."""

    ks: tuple[int, ...]
    rounds: int
    measure_s: float
    """Seconds of work measured in each visit."""
    settle_s: float = SETTLE_S
    lease_s: float = LEASE_S

    @property
    def visits(self) -> int:
        """All of them."""
        return len(self.ks) * self.rounds

    @property
    def seconds(self) -> float:
        """How long it takes while the engine has work all the time."""
        return self.visits * (self.settle_s + self.measure_s)


def every_k(state: EngineState) -> range:
    """The k's that an engine can draft, 0 among them where it can skip a round."""
    return range(0 if state.can("target_only").available else 1, state.k_max + 1)


def plan(ks: Sequence[int], *, seconds: float, rounds: int | None = None) -> Plan:
    """A sweep over `ks` in `seconds`, or in the least time that tells something.

    >>> planned = plan(range(6), seconds=60.0)
    >>> planned.rounds, round(planned.seconds)
    (8, 60)
    >>> round(plan(range(6), seconds=1.0).seconds, 1)  # the least: three short rounds
    11.7
    """
    every = tuple(sorted(set(ks)))
    if rounds is None:
        fitting = int(seconds / (len(every) * VISIT_S))
        rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, fitting))
    each = seconds / (len(every) * rounds) - SETTLE_S
    return Plan(every, rounds, round(max(LEAST_S, each), 3))
