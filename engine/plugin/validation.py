"""What may be asked: a body becomes a change at the API server, or a reply that refuses.

`parse_change` looks at the body alone, once; `check_change` holds the change against the
engine as it is, before any of it takes effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specdeck.engine.plugin.reply import Refusal, conflict, inability, nonsense
from specdeck.engine.policy.parameters import ParameterError
from specdeck.engine.protocol.messages import FALLBACKS, MODES, POLICIES, Change

if TYPE_CHECKING:
    from specdeck.engine.plugin.steering import Knobs, Steering

_CLOSED = {
    "mode": MODES,
    "fallback": FALLBACKS,
    "policy": POLICIES,
    "breaker": ("open", "closed"),
    "cause": ("divergence",),
}
_MOST_PARAMETERS = 100
_KNOWN = frozenset(Change.__dataclass_fields__)


def parse_change(body: Any) -> Change:
    """The change that a request's JSON body asks for; raises Refusal on nonsense.

    >>> parse_change({"k": 3, "who": "ana"}).knobs()
    {'k': 3}
    >>> parse_change({"k": True})
    Traceback (most recent call last):
    specdeck.engine.plugin.reply.Refusal: k requires a whole number from 0 up, not True
    """
    if not isinstance(body, dict):
        raise nonsense("the body is not a JSON object")
    unknown = sorted(set(body) - _KNOWN)
    if unknown:
        raise nonsense(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    for key in ("k", "expect_version", "trial"):
        if not _is_whole(body.get(key)):
            raise nonsense(f"{key} requires a whole number from 0 up, not {body[key]!r}")
    for key, choices in _CLOSED.items():
        if body.get(key) is not None and body[key] not in choices:
            raise nonsense(f"{key} is one of {', '.join(choices)}, not {body[key]!r}")
    for key in ("reason", "who"):
        if not isinstance(body.get(key), str | None):
            raise nonsense(f"{key} requires text")
    if not isinstance(body.get("origin", ""), str):  # another word is of a newer client
        raise nonsense("origin requires text")
    lease = body.get("lease_s")
    if lease is not None and not (_is_number(lease) and 0 < lease <= 86_400):
        raise nonsense(f"lease_s requires seconds above 0 and up to a day, not {lease!r}")
    for key in ("renew", "cancel", "judge", "probe"):
        if not isinstance(body.get(key, False), bool):
            raise nonsense(f"{key} requires true or false")
    seconds = body.get("trial_s")
    if seconds is not None and not (_is_number(seconds) and 0.5 <= seconds <= 86_400):
        raise nonsense(f"trial_s requires seconds from 0.5 up to a day, not {seconds!r}")
    if not _are_parameters(body.get("parameters")):
        raise nonsense("parameters requires names with numbers, words, true or false")
    return _require_sense(Change(**body))


def _require_sense(change: Change) -> Change:
    held = change.renew or change.cancel
    if change.renew and (change.knobs() or change.lease_s is None):
        raise nonsense("renew takes lease_s and no knob")
    if change.cancel and (change.knobs() or change.renew or change.judge or change.lease_s):
        raise nonsense("cancel takes nothing else")
    if change.trial is not None and not held:
        raise nonsense("trial goes with renew and cancel")
    if not held and not change.knobs():
        raise nonsense("nothing to change: give k, mode, fallback, policy, breaker or parameters")
    if change.breaker and (change.judge or change.lease_s):
        raise nonsense(
            "the breaker cannot be put on trial: give it without lease_s, judge and trial_s"
        )
    if change.judge and change.lease_s is None:
        raise nonsense("judge requires lease_s: the change is reverted when nobody renews it")
    if change.trial_s is not None and not change.judge:
        raise nonsense("trial_s requires judge")
    if (change.probe or change.cause) and change.breaker != "open":
        raise nonsense("probe and cause require breaker=open")
    if change.probe and change.cause:
        raise nonsense("probe and cause are mutually exclusive")
    return change


def _are_parameters(given: object) -> bool:
    """Whether it is a flat mapping of values; the names are looked at by the catalogue."""
    if given is None:
        return True
    if not isinstance(given, dict) or len(given) > _MOST_PARAMETERS:
        return False
    return all(isinstance(value, int | float | str | bool | None) for value in given.values())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


_NEEDS = {"k": "live_k", "mode": "target_only", "breaker": "breaker"}


@dataclass(frozen=True, slots=True)
class VersionSnapshot:
    """What a change is checked against."""

    version: int
    last: str | None
    """Who changed the engine last."""
    now: Knobs
    """In force, or in force again once a change has ended the trial under way."""
    later: Knobs | None
    """What a lease goes back to; None without one."""
    trying: str | None
    """Whose trial is under way."""


def check_change(change: Change, steering: Steering, snapshot: VersionSnapshot) -> None:
    """Raises Refusal unless `change` can be made, whole."""
    _require_current(change, snapshot)
    for name in _needed_capabilities(change):
        capability = steering.can(name)
        if not capability.available:
            raise inability(capability)
    if change.policy is not None and change.policy in steering.wrong:
        remedy = "correct the config's orchestration block and restart the engine"
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
    _require_possible(change, steering, snapshot)


def _require_current(change: Change, snapshot: VersionSnapshot) -> None:
    """Refuses what somebody else was faster than."""
    version = snapshot.version
    if change.expect_version is not None and change.expect_version != version:
        raise conflict(version, snapshot.last or "specdeck")
    held = snapshot.later is not None or snapshot.trying is not None
    if (change.renew or change.cancel) and not held:
        raise conflict(version, "specdeck (the lease has run out)")
    if change.judge and held:
        whose = f"{snapshot.trying}'s trial" if snapshot.trying else "a lease"
        raise conflict(version, f"specdeck: {whose} is under way, and there is one at a time")


def _needed_capabilities(change: Change) -> list[str]:
    """The capabilities that `change` requires."""
    names = [_NEEDS[knob] for knob in change.knobs() if knob in _NEEDS]
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


def _require_possible(change: Change, steering: Steering, snapshot: VersionSnapshot) -> None:
    """Refuses parameters that make no sense beside those in force, now or when a lease ends."""
    configured, later = steering.configured, snapshot.later
    when = ""
    try:
        found = configured.with_values(snapshot.now.with_change(change).parameters)
        if change.judge and change.trial_s is not None:
            found.trial.lasting(change.trial_s)
        if later is not None and not change.lease_s:
            when = "when the lease ends, "
            configured.with_values(later.with_change(change).parameters)
    except ParameterError as error:
        raise Refusal(400, "parameter", f"{when}{error}", "nothing was changed") from None
