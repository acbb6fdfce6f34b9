"""A change that is not made, as a value that travels to the client."""

from __future__ import annotations

from typing import Any

from specdeck.engine.control.protocol import (
    FALLBACKS,
    MODES,
    POLICIES,
    Capability,
    Change,
)


class Refusal(Exception):
    """Why a request is turned down, with the HTTP status that says so."""

    def __init__(self, status: int, code: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.remedy = remedy

    def as_json(self) -> dict[str, Any]:
        """The body of the reply."""
        return {"error": {"code": self.code, "message": str(self), "remedy": self.remedy}}


def unsupported(capability: Capability) -> Refusal:
    """501: this engine cannot."""
    return Refusal(501, capability.name, capability.reason or "not available", capability.remedy)


def conflict(version: int, who: str) -> Refusal:
    """409: someone else was first."""
    message = f"the engine is at version {version}, changed by {who}"
    return Refusal(409, "version", message, "look at its state and try again")


def nonsense(message: str) -> Refusal:
    """400: not a change at all."""
    return Refusal(400, "invalid", message)


_CLOSED = {
    "mode": MODES,
    "fallback": FALLBACKS,
    "policy": POLICIES,
    "breaker": ("open", "closed"),
    "cause": ("divergence",),
}
_MOST_PARAMETERS = 100
_KNOWN = frozenset(Change.__dataclass_fields__)


def change_from(body: Any) -> Change:
    """The change that a request's JSON body asks for; raises Refusal on nonsense.

    >>> change_from({"k": 3, "who": "ana"}).asked()
    {'k': 3}
    >>> change_from({"k": True})
    Traceback (most recent call last):
    specdeck.engine.plugin.refusal.Refusal: k wants a whole number from 0 up, not True
    """
    if not isinstance(body, dict):
        raise nonsense("the body is not a JSON object")
    unknown = sorted(set(body) - _KNOWN)
    if unknown:
        raise nonsense(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    for key in ("k", "expect_version", "trial"):
        if not _whole(body.get(key)):
            raise nonsense(f"{key} wants a whole number from 0 up, not {body[key]!r}")
    for key, choices in _CLOSED.items():
        if body.get(key) is not None and body[key] not in choices:
            raise nonsense(f"{key} is one of {', '.join(choices)}, not {body[key]!r}")
    for key in ("reason", "who"):
        if not isinstance(body.get(key), str | None):
            raise nonsense(f"{key} wants text")
    if not isinstance(body.get("origin", ""), str):  # another word is of a newer client
        raise nonsense("origin wants text")
    lease = body.get("lease_s")
    if lease is not None and not (_number(lease) and 0 < lease <= 86_400):
        raise nonsense(f"lease_s wants seconds above 0 and up to a day, not {lease!r}")
    for key in ("renew", "cancel", "judge", "probe"):
        if not isinstance(body.get(key, False), bool):
            raise nonsense(f"{key} wants true or false")
    seconds = body.get("trial_s")
    if seconds is not None and not (_number(seconds) and 0.5 <= seconds <= 86_400):
        raise nonsense(f"trial_s wants seconds from 0.5 up to a day, not {seconds!r}")
    if not _parameters(body.get("parameters")):
        raise nonsense("parameters wants names with numbers, words, true or false")
    return _sensible(Change(**body))


def _sensible(change: Change) -> Change:
    held = change.renew or change.cancel
    if change.renew and (change.asked() or change.lease_s is None):
        raise nonsense("renew takes lease_s and no knob")
    if change.cancel and (change.asked() or change.renew or change.judge or change.lease_s):
        raise nonsense("cancel takes nothing else")
    if change.trial is not None and not held:
        raise nonsense("trial goes with renew and cancel")
    if not held and not change.asked():
        raise nonsense("nothing to change: give k, mode, fallback, policy, breaker or parameters")
    if change.breaker and (change.judge or change.lease_s):
        raise nonsense("the breaker is not tried: give it without lease_s, judge and trial_s")
    if change.judge and change.lease_s is None:
        raise nonsense("judge wants lease_s: what takes the change back when nobody renews it")
    if change.trial_s is not None and not change.judge:
        raise nonsense("trial_s goes with judge")
    if (change.probe or change.cause) and change.breaker != "open":
        raise nonsense("probe and cause go with breaker open")
    if change.probe and change.cause:
        raise nonsense("no probe can show that divergence is over: probe and cause exclude another")
    return change


def _parameters(given: object) -> bool:
    """Whether it is a flat mapping of values; the names are looked at by the catalogue."""
    if given is None:
        return True
    if not isinstance(given, dict) or len(given) > _MOST_PARAMETERS:
        return False
    return all(isinstance(value, int | float | str | bool | None) for value in given.values())


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
