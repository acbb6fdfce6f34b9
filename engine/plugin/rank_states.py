"""What several data-parallel ranks say of themselves, as the word of one engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.protocol.messages import RankState
from specdeck.engine.protocol.requests import Requests, merge_requests

Answer = dict[str, Any]
"""What one rank says, as JSON."""

_SUMS = ("drafts", "running", "waiting", "pinned", "exact_running", "exact_requests",
         "exact_tokens")  # fmt: skip
_SUMS_PER_POSITION = ("drafted_per_position", "accepted_per_position")
_EXACT = ("requests", "tokens", "running")
_ALIKE = ("k", "mode", "fallback", "policy", "breaker")
"""What a path's name depends on, and every change has alike on all ranks."""

_COMPARED = ("live", "engine")
"""Facts that every rank knows: what is set, and what runs it."""

_OWN = tuple(field.name for field in fields(RankState) if field.name != "rank")


def merge_states(states: Sequence[Answer]) -> Answer:
    """The state of all ranks: the first one's, counts and requests of all, and each by itself; what
    one rank cannot, the engine cannot.

    There is no one name for paths that differ: a change may be under way, or a lease end.

    >>> one = {**dict.fromkeys((*_SUMS, *_OWN), 1), "fingerprint": "sd1:p1"}
    >>> one |= {"drafted_per_position": [3, 2], "accepted_per_position": [2, 1]}
    >>> one["capabilities"] = [{"name": "request_k", "available": True}]
    >>> lost = [{"name": "request_k", "available": False}]
    >>> found = merge_states([one, {**one, "k": 2, "capabilities": lost}])
    >>> found["drafts"], found["drafted_per_position"], found["k"], found["fingerprint"]
    (2, [6, 4], 1, None)
    >>> [rank["k"] for rank in found["ranks"]]
    [1, 2]
    >>> found["capabilities"] == lost
    True
    """
    first = dict(states[0])
    for name in _SUMS:
        first[name] = sum(state[name] for state in states)
    for name in _SUMS_PER_POSITION:
        first[name] = [sum(at) for at in zip(*(state[name] for state in states), strict=True)]
    if any(state[name] != first[name] for state in states for name in _ALIKE):
        first["fingerprint"] = None
    cannot = {
        one["name"]: one
        for state in reversed(states)
        for one in state["capabilities"]
        if not one["available"]
    }
    first["capabilities"] = [cannot.get(one["name"], one) for one in first["capabilities"]]
    first["ranks"] = [
        {"rank": rank, **{name: state[name] for name in _OWN}} for rank, state in enumerate(states)
    ]
    return first


def merge_tunings(tunings: Sequence[Answer]) -> Answer:
    """The first rank's, with the exact traffic of all.

    >>> exact = {"models": ["m"], "requests": 1, "tokens": 9, "running": 0}
    >>> merge_tunings([{"exact": exact}, {"exact": exact}])["exact"]["tokens"]
    18
    """
    first = dict(tunings[0])
    sums = {name: sum(tuning["exact"][name] for tuning in tunings) for name in _EXACT}
    reason = next(filter(None, (tuning.get("exact_reason") for tuning in tunings)), None)
    return {**first, "exact": {**first["exact"], **sums}, "exact_reason": reason}


def merge_facts(answers: Sequence[Answer]) -> Answer:
    """The first rank's, which has read the weights; its names are partial where ranks differ.

    >>> one = {"facts": {"live": {"k": 3}, "engine": {"vllm": "0.32.0"}}, "partial": []}
    >>> merge_facts([one, one]) == one
    True
    >>> other = {**one, "facts": {**one["facts"], "live": {"k": 1}}}
    >>> merged = merge_facts([one, other])
    >>> merged["fingerprint"][:6], merged["partial"]
    ('sd1:p~', [{'fact': 'live', 'reason': 'data-parallel rank 1 differs from rank 0'}])
    """
    first = answers[0]
    unlike = [
        {"fact": section, "reason": f"data-parallel rank {rank} differs from rank 0"}
        for rank, other in enumerate(answers[1:], 1)
        for section in _COMPARED
        if other["facts"].get(section) != first["facts"].get(section)
    ]
    if not unlike:
        return first
    build, path = compute_names(first["facts"], partial=True)
    names = {"build": build, "path": path}
    return {**first, "fingerprint": path, "names": names, "partial": [*first["partial"], *unlike]}


def merge_all_requests(answers: Sequence[Answer]) -> Answer:
    """Those of all ranks, each with its rank."""
    return merge_requests([Requests.from_json(answer) for answer in answers]).as_json()


MERGES: Mapping[str, Callable[[Sequence[Answer]], Answer]] = {
    "state": merge_states,
    "tuning": merge_tunings,
    "requests": merge_all_requests,
    "facts": merge_facts,
}
"""By the command that was asked; of all others the first rank speaks for those that agree."""
