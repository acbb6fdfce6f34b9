"""Which k's a sweep visits, in which order, how often and for how long, and what forbids it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from specdeck.engine.errors import Conflict, Unsupported

if TYPE_CHECKING:
    from specdeck.engine.protocol.messages import EngineState

SETTLE_S = 0.25
"""After a change, before anything is counted: drafts of before are verified, batches refill."""
VISIT_S = 1.2
"""A whole visit, where the time allows it: more rounds tell more than longer ones."""
LEAST_S = 0.4
"""Measured in a visit at least."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 12
"""Fewer give no interval worth the name."""
LATE = 0.1
"""A last round is made where it ends within this share of the time after it."""
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
    limit_s: float | None = None
    """Seconds that a slow engine may take for it; None is as long as the rounds take."""

    @property
    def visits(self) -> int:
        """All of them."""
        return len(self.ks) * self.rounds

    @property
    def visit_s(self) -> float:
        """Seconds of one visit while the engine has work all the time."""
        return self.settle_s + self.measure_s

    @property
    def seconds(self) -> float:
        """How long the sweep takes while the engine has work all the time."""
        return self.visits * self.visit_s

    def fit_rounds(self, made: int, seconds: float) -> Plan:
        """This plan with the rounds that its time has room for, when `made` took `seconds`.

        An engine whose core is slow to answer takes longer than the work that is measured.

        >>> planned = plan(range(9), seconds=60.0)
        >>> planned.rounds, planned.fit_rounds(1, 12.0).rounds, planned.fit_rounds(1, 24.0).rounds
        (5, 5, 3)
        """
        if self.limit_s is None or not made or seconds <= 0:
            return self
        fitting = int(self.limit_s * (1 + LATE) / (seconds / made))
        return replace(self, rounds=min(self.rounds, max(made, LEAST_ROUNDS, fitting)))

    def order(self, random: Random) -> Iterator[tuple[int, int]]:
        """(round, k): every k once a round, in a new order each time.

        Load that drifts hits every k alike, and none always follows the same other one.

        >>> visits = list(Plan((0, 1, 2), 2, 1.0).order(Random(1)))
        >>> [round for round, _ in visits], sorted(k for _, k in visits)
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
        """
        for number in range(self.rounds):
            shuffled = list(self.ks)
            random.shuffle(shuffled)
            for k in shuffled:
                yield number, k


def every_k(state: EngineState) -> list[int]:
    """The k's that an engine can draft, 0 among them where it can skip a round.

    Raises Unsupported for an engine that can draft none.
    """
    if state.k_max < 1:
        raise Unsupported(
            "the engine does not speculate", remedy="start it with a speculative_config"
        )
    every = range(0 if state.can("target_only").available else 1, state.k_max + 1)
    return [k for k in every if state.find_refusal(k) is None]


def plan(ks: Sequence[int], *, seconds: float, rounds: int | None = None) -> Plan:
    """A sweep over `ks` in `seconds`, or in the least time that tells something.

    `rounds` are made however long they take; without them a slow engine gets fewer.

    >>> planned = plan(range(6), seconds=60.0)
    >>> planned.rounds, round(planned.seconds)
    (8, 60)
    >>> round(plan(range(6), seconds=1.0).seconds, 1)  # the least: three short rounds
    11.7
    """
    every = tuple(sorted(set(ks)))
    limit = seconds if rounds is None else None
    if rounds is None:
        fitting = int(seconds / (len(every) * VISIT_S))
        rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, fitting))
    each = seconds / (len(every) * rounds) - SETTLE_S
    return Plan(every, rounds, round(max(LEAST_S, each), 3), limit_s=limit)


def refuse(state: EngineState, plan: Plan) -> None:
    """Raises Unsupported or Conflict where this engine cannot be swept now, with the reason."""
    able = state.can("live_k")
    if not able.available:
        raise Unsupported(f"a sweep requires live k: {able.reason}", remedy=able.remedy)
    zero = state.can("target_only")
    if 0 in plan.ks and not zero.available:
        raise Unsupported(f"k=0 cannot be visited: {zero.reason}", remedy="sweep from 1 on")
    for k in plan.ks:
        if (refused := state.find_refusal(k)) is not None:
            raise Unsupported(f"k={k} cannot be visited: {refused.reason}", remedy=refused.remedy)
    if plan.ks[-1] > state.k_max:
        raise Unsupported(
            f"k={plan.ks[-1]} is above k_max={state.k_max}: the engine's buffers are sized by it",
            remedy=f"sweep up to {state.k_max}, or start the engine with "
            f"num_speculative_tokens: {plan.ks[-1]}",
        )
    if state.lease is not None or state.trial is not None:
        last = state.last_change
        leased = "a change under a lease" if last is None else f"{last.who}'s change under a lease"
        raise Conflict(
            f"{state.mover or leased} is in force", remedy="wait for its end, or undo it"
        )
    if state.breaker != "closed" and state.policy == "fixed":  # one of a policy ends with it
        why = f": {state.policy_reason}" if state.policy_reason else ""
        raise Conflict(
            f"the breaker is {state.breaker}{why}", remedy="reset it first with breaker=closed"
        )
