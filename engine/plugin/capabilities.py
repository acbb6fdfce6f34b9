"""What can be changed on this engine, and the reason and remedy where it cannot.

The facts are vLLM's own, read in its source (0.32 and 0.33): methods whose proposer
asserts that k equals num_speculative_tokens would end the engine, so they are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from specdeck.engine.plugin.contract import Build
from specdeck.engine.protocol.messages import INTERMEDIATE_K, Capability
from specdeck.engine.protocol.vllm_versions import REMEDY

_ASSERTS_ON_V1 = frozenset({"suffix", "ngram_gpu", "extract_hidden_states", "medusa"})
"""Proposers of the V1 runner that assert k == num_speculative_tokens."""

_NO_DRAFTS = "the engine runs without speculative decoding"
_START_WITH_DRAFTS = "start it with a speculative_config"
_OFF_GRAPHS = (
    "a request with a k of its own takes every request beside it off the full CUDA graphs while "
    "it runs"
)

_SEVERAL = Capability(
    "live_k", False, "data-parallel ranks with different k could deadlock",
    "run one engine per rank, without data_parallel_size",
)  # fmt: skip
_NOT_TURNED = ("request_k", "policy.fixed")
"""What holds without anybody turning k: of each request, and as the engine was started."""

_NO_ZERO_ON_V1 = frozenset({"step3p5", "step3p5_mtp"})
"""Drafts whose V1 proposer has no branch for k = 0."""


def capabilities(build: Build) -> tuple[Capability, ...]:
    """Everything an operator may want to change, in the order of a screen."""
    live_k = _live_k(build)
    between = _intermediate_k(build, live_k)
    return (
        live_k,
        between,
        _target_only(build, live_k),
        _cold(build, live_k),
        _request_k(build),
        replace(_target_only(build, live_k), name="breaker"),
        _like(live_k, "trial"),
        Capability("policy.fixed", True),
        replace(between, name="policy.threshold"),
        replace(between, name="policy.goodput"),
    )


def of_several_ranks() -> Capability:
    """Why k cannot be changed where there are several data-parallel ranks.

    The ranks of a dense model do not know of each other: each would judge trials, and move k
    by a policy, on its own. So it is the API server, which does know, that refuses.
    """
    return _SEVERAL


def of_no_token(why: str) -> Capability:
    """Why nothing can be changed where the engine cannot keep an admin token."""
    return Capability(
        "admin_token", False, f"the engine cannot keep an admin token: {why}",
        "restart it with SPECDECK_HOME naming a folder that it can write, or with "
        "SPECDECK_ADMIN_TOKEN_FILE naming a token's file",
    )  # fmt: skip


def withhold(found: Iterable[Mapping[str, Any]], why: Capability) -> list[dict[str, Any]]:
    """The capabilities `found`, without those that turn k, for the reason and remedy of `why`.

    >>> withhold([{"name": "request_k", "available": True, "reason": None, "remedy": None}],
    ...          of_several_ranks())
    [{'name': 'request_k', 'available': True, 'reason': None, 'remedy': None}]
    >>> withhold([{"name": "cold", "available": True, "reason": None, "remedy": None}],
    ...          of_several_ranks())[0]["reason"]
    'data-parallel ranks with different k could deadlock'
    """
    return [
        {**asdict(why), "name": one["name"]}
        if one["available"] and one["name"] not in _NOT_TURNED
        else dict(one)
        for one in found
    ]


def _live_k(build: Build) -> Capability:
    name = "live_k"
    if build.method is None:
        return Capability(name, False, _NO_DRAFTS, _START_WITH_DRAFTS)
    if build.missing:
        return Capability(
            name, False, f"vLLM {build.vllm} has no {', '.join(build.missing)}",
            REMEDY,
        )  # fmt: skip
    if build.runner == "V1" and build.method in _ASSERTS_ON_V1:
        return Capability(
            name, False, f"method {build.method} on the V1 runner accepts only k = {build.k_max}",
            "use draft_model, eagle, eagle3, mtp or ngram",
        )  # fmt: skip
    if build.method == "custom_class":
        return Capability(
            name,
            False,
            "vLLM does not pass k to a custom proposer",
            "use one of vLLM's own methods",
        )
    if build.data_parallel > 1 and build.moe:
        return Capability(
            name, False, "data-parallel ranks of a mixture-of-experts model must agree on k",
            "run with data_parallel_size 1, or one engine for each rank",
        )  # fmt: skip
    if build.drafts_all_or_none:
        return Capability(
            name, True, f"parallel drafting: k can be 0 or {build.k_max}, and nothing between"
        )
    return Capability(name, True, _same_drafting(build))


def _same_drafting(build: Build) -> str | None:
    """Where a smaller k is less to verify, and no less to draft; None where it is."""
    what, k_max = f"the {build.runner} drafter for {build.method}", build.k_max
    if not build.drafter_obeys:
        return f"less verification, same drafting: {what} drafts {k_max} tokens at every k"
    between = range(2, k_max)  # one pass is not part of the loop that is captured
    captured = build.drafter_captured
    if not captured or not between:
        return None
    if captured == {k_max}:
        return (
            f"less verification, same drafting from k = 2 on: {what} replays a CUDA graph of "
            f"{k_max} passes"
        )
    if eager := [k for k in (*between, k_max) if k not in captured]:
        depths = ", ".join(map(str, eager))
        return f"{what} has no CUDA graph at k = {depths}: it drafts slower there"
    return None


def _intermediate_k(build: Build, live_k: Capability) -> Capability:
    if live_k.available and build.drafts_all_or_none:
        return Capability(
            INTERMEDIATE_K, False,
            f"parallel drafting makes {build.k_max} tokens or none: any other k ends the engine",
            f"use k=0 or k={build.k_max}, or a draft without parallel_drafting",
        )  # fmt: skip
    return _like(live_k, INTERMEDIATE_K)


def _target_only(build: Build, live_k: Capability) -> Capability:
    if live_k.available and build.runner == "V1" and build.draft_architecture in _NO_ZERO_ON_V1:
        return Capability(
            "target_only", False, f"a {build.draft_architecture} draft on V1 cannot skip a round",
            "use k=1, or the V2 runner",
        )  # fmt: skip
    return _like(live_k, "target_only")


def _cold(build: Build, live_k: Capability) -> Capability:
    if live_k.available and not build.can_skip_drafter:
        reason = (
            "an n-gram draft has no model to leave out"
            if build.method == "ngram"
            else f"the {build.runner} drafter for {build.method} cannot be left out of a step"
        )
        return Capability("cold", False, reason, "use the warm fallback")
    if live_k.available and build.kv_connector:
        return Capability(
            "cold", False, "KV blocks that the connector holds would lack the drafter's part,"
            " and leaving cold does not empty it",
            "use the warm fallback, or start without kv_transfer_config and kv_offloading_size",
        )  # fmt: skip
    return _like(live_k, "cold")


def _request_k(build: Build) -> Capability:
    """A pin cuts proposed drafts in the scheduler, so every method and runner can be pinned."""
    if build.method is None:
        return Capability("request_k", False, _NO_DRAFTS, _START_WITH_DRAFTS)
    if not build.can_pin:
        reason = f"vLLM {build.vllm}'s scheduler has no place to pin a request"
        return Capability("request_k", False, reason, REMEDY)
    return Capability("request_k", True, _OFF_GRAPHS if build.full_graphs else None)


def _like(live_k: Capability, name: str) -> Capability:
    """What moves k, and so can no more than an operator can; a mere remark on k is k's own."""
    return replace(live_k, name=name, reason=None if live_k.available else live_k.reason)
