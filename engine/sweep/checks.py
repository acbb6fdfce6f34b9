"""Whether an engine can be swept, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdeck.engine.control.protocol import EngineState
from specdeck.engine.errors import Conflict, EngineError, Unsupported
from specdeck.engine.sweep.plan import Plan


def refuse(state: EngineState, plan: Plan) -> None:
    """Raises Unsupported or Conflict where this engine cannot be swept now, with the reason."""
    able = state.can("live_k")
    if not able.available:
        raise Unsupported(f"a sweep wants live k: {able.reason}", remedy=able.remedy)
    zero = state.can("target_only")
    if 0 in plan.ks and not zero.available:
        raise Unsupported(f"k=0 cannot be visited: {zero.reason}", remedy="sweep from 1 on")
    if plan.ks[-1] > state.k_max:
        raise Unsupported(
            f"k={plan.ks[-1]} is above k_max={state.k_max}: the engine's buffers are sized by it",
            remedy=f"sweep up to {state.k_max}, or start the engine with "
            f"num_speculative_tokens: {plan.ks[-1]}",
        )
    if state.lease is not None or state.trial is not None:
        who = state.last_change.who if state.last_change else "somebody"
        raise Conflict(
            f"a trial or another sweep is on, by {who}", remedy="wait for its end, or take it back"
        )
    if state.breaker != "closed" and state.policy == "fixed":  # one of a policy ends with it
        why = f": {state.policy_reason}" if state.policy_reason else ""
        raise Conflict(
            f"the breaker is {state.breaker}{why}", remedy="reset it first with breaker=closed"
        )


def idle(seconds: float) -> EngineError:
    """No traffic, so nothing to measure."""
    return EngineError(
        f"no traffic: the engine generated next to nothing in {seconds:.0f} s",
        remedy="sweep it while it serves, or put load on it with `specdeck load`",
    )


def moved(state: EngineState) -> Conflict:
    """Who turned what, so that the sweep cannot go on."""
    change = state.last_change
    if change is None:
        return Conflict("somebody else steers the engine", remedy="agree on who does, sweep again")
    if change.origin == "lease":
        return Conflict("the sweep's lease ran out before it was renewed", remedy="sweep again")
    turned = ", ".join(
        f"{name} {change.before.get(name, '?')} → {value}"
        for name, value in change.after.items()
        if change.before.get(name) != value
    )
    return Conflict(
        f"{change.who} changed {turned or 'the engine'} in mid-sweep", remedy="sweep again"
    )


def kept(state: EngineState) -> Conflict:
    """Somebody asked for what was in force anyway: no change, but it is to stay."""
    return Conflict(f"somebody set k={state.k_set} for good in mid-sweep", remedy="sweep again")


def max_num_seqs(facts: Mapping[str, Any]) -> int | None:
    """The largest batch of the engine; None where the facts do not say.

    >>> max_num_seqs({"facts": {"config": {"scheduler": {"max_num_seqs": 32}}}})
    32
    >>> max_num_seqs({}) is None
    True
    """
    found: Any = facts
    for name in ("facts", "config", "scheduler", "max_num_seqs"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) else None
