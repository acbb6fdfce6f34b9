"""What of a change is refused, before any of it takes effect."""

from __future__ import annotations

from dataclasses import dataclass

from specdeck.engine.control.protocol import Change
from specdeck.engine.plugin.knobs import Knobs
from specdeck.engine.plugin.refusal import Refusal, conflict, unsupported
from specdeck.engine.plugin.steering import Steering
from specdeck.engine.policy.parameters import ParameterError

_NEEDS = {"k": "live_k", "mode": "target_only", "breaker": "breaker"}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a change is held against."""

    version: int
    last: str | None
    """Who changed the engine last."""
    now: Knobs
    """In force, or in force again once a change has ended the trial under way."""
    later: Knobs | None
    """What a lease goes back to; None without one."""
    trying: str | None
    """Whose trial is under way."""


def check(change: Change, steering: Steering, standing: Standing) -> None:
    """Raises Refusal unless `change` can be made, whole."""
    _in_time(change, standing)
    for name in _needed(change):
        capability = steering.can(name)
        if not capability.available:
            raise unsupported(capability)
    if change.policy is not None and change.policy in steering.wrong:
        remedy = "mend the config's orchestration block and start the engine anew"
        reason = steering.wrong[change.policy]
        raise Refusal(501, f"policy.{change.policy}", reason, remedy)
    k_max = steering.engine.build.k_max
    if change.k is not None and change.k > k_max:
        raise Refusal(
            501,
            "k_max",
            f"k={change.k} is above k_max={k_max}: the engine's buffers are sized by it",
            f"start the engine with num_speculative_tokens: {change.k}",
        )
    _sensible(change, steering, standing)


def _in_time(change: Change, standing: Standing) -> None:
    """Refuses what somebody else was faster than."""
    version = standing.version
    if change.expect_version is not None and change.expect_version != version:
        raise conflict(version, standing.last or "specdeck")
    held = standing.later is not None or standing.trying is not None
    if (change.renew or change.cancel) and not held:
        raise conflict(version, "specdeck (the lease has run out)")
    if change.judge and held:
        whose = f"{standing.trying}'s trial" if standing.trying else "a lease"
        raise conflict(version, f"specdeck: {whose} is under way, and there is one at a time")


def _needed(change: Change) -> list[str]:
    """The capabilities that `change` wants."""
    names = [_NEEDS[knob] for knob in change.asked() if knob in _NEEDS]
    if change.parameters:  # of what moves k, or has it moved on trial
        names.append("live_k")
    if change.k == 0:  # the same to the drafter as target-only
        names.append("target_only")
    if change.judge:
        names.append("trial")
    if change.fallback == "cold":
        names.append("cold")
    if change.policy is not None:
        names.append(f"policy.{change.policy}")
    return names


def _sensible(change: Change, steering: Steering, standing: Standing) -> None:
    """Refuses parameters that make no sense beside those in force, now or when a lease ends."""
    configured, later = steering.configured, standing.later
    when = ""
    try:
        found = configured.with_values(standing.now.turned(change).parameters)
        if change.judge and change.trial_s is not None:
            found.trial.lasting(change.trial_s)
        if later is not None and not change.lease_s:
            when = "when the lease ends, "
            configured.with_values(later.turned(change).parameters)
    except ParameterError as error:
        raise Refusal(400, "parameter", f"{when}{error}", "nothing was changed") from None
