"""What can be changed on this engine, and the reason and remedy where it cannot.

The facts are vLLM's own, read in its source (0.32 and 0.33): methods whose proposer
asserts that k equals num_speculative_tokens would end the engine, so they are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from specdeck.engine.plugin.contract import Gap, by_loss, describe_gaps
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.provenance import how_known
from specdeck.engine.protocol.full_graphs import describe_all
from specdeck.engine.protocol.messages import INTERMEDIATE_K, Capability
from specdeck.engine.protocol.methods import FIXED_K
from specdeck.engine.protocol.vllm_versions import REMEDY

_NO_DRAFTS = "the engine runs without speculative decoding"
_START_WITH_DRAFTS = "start it with a speculative_config"
_OFF_GRAPHS = (
    "a request with a k of its own takes every request beside it off the full CUDA graphs while "
    "it runs"
)

APART = "ranks"
"""Names the capability of changing data-parallel ranks together."""

_WARM = (
    "the drafter still makes a pass in each step: against an engine without speculation that cost "
    "6.6 % a step at 2 streams and 21.6 % at 189 (V1 runner, H100; vLLM issue 51575)"
)
"""What warm target-only costs; vLLM's issue 51575, version 0.27.1."""
_NOT_TURNED = ("request_k", "policy.fixed")
"""What holds without anybody turning k: of each request, and as the engine was started."""

_MODEL_DRAFTS = frozenset({"draft_model", "eagle", "eagle3", "mtp"})
"""Methods whose drafts cost the same whatever the text is."""
_PLAIN_CACHE = "FullAttentionSpec"
"""vLLM's name of the KV cache in which the null block is read by nobody."""
_BY_SWEEP = "let a policy time the steps of real traffic, or measure it with `specdeck sweep`"

_NO_ZERO_ON_V1 = frozenset({"step3p5", "step3p5_mtp"})
"""Drafts whose V1 proposer has no branch for k = 0."""


def capabilities(build: Build) -> tuple[Capability, ...]:
    """Everything an operator may want to change, in the order of a screen."""
    live_k = _live_k(build)
    between = _intermediate_k(build, live_k)
    target_only = _target_only(build, live_k)
    how = how_known(build)
    found = (
        live_k,
        between,
        target_only,
        _cold(build, live_k),
        _request_k(build),
        _request_rest(build),
        _like(target_only, "breaker"),
        _like(live_k, "trial"),
        Capability("policy.fixed", True),
        replace(between, name="policy.threshold"),
        replace(between, name="policy.goodput"),
        *_full_graphs(build),
        *_cohorts(build),
        _calibration(build, live_k),
    )
    return tuple(replace(one, how=how) for one in found)


def of_apart(why: str) -> Capability:
    """Why data-parallel ranks cannot be changed together, and so not at all."""
    return Capability(
        APART, False, f"the data-parallel ranks cannot be changed together: {why}",
        "run one engine per rank, without data_parallel_size",
    )  # fmt: skip


def of_no_token(why: str) -> Capability:
    """Why nothing can be changed where the engine cannot keep an admin token."""
    return Capability(
        "admin_token", False, f"the engine cannot keep an admin token: {why}",
        "restart it with SPECDECK_HOME naming a folder that it can write, or with "
        "SPECDECK_ADMIN_TOKEN_FILE naming a token's file",
    )  # fmt: skip


def lose(
    found: Iterable[Mapping[str, Any]], gaps: Iterable[Gap], vllm: str
) -> list[dict[str, Any]]:
    """The capabilities `found`, without what is lost to the `gaps` of an API server.

    What has no capability of its own is added, as one that is not there.

    >>> [one["name"] for one in lose([], (), "0.33.0")]
    []
    """
    kept = [dict(one) for one in found]
    for loss, lost in by_loss(gaps).items():
        why = Capability(loss, False, describe_gaps(lost, vllm), REMEDY)
        if loss == "live_k":
            kept = withhold(kept, why)
        elif loss in {one["name"] for one in kept}:
            kept = [asdict(why) if one["name"] == loss else one for one in kept]
        else:
            kept.append(asdict(why))
    return kept


def withhold(found: Iterable[Mapping[str, Any]], why: Capability) -> list[dict[str, Any]]:
    """The capabilities `found`, without those that turn k, for the reason and remedy of `why`.

    >>> withhold([{"name": "request_k", "available": True, "reason": None, "remedy": None}],
    ...          of_no_token("why"))
    [{'name': 'request_k', 'available': True, 'reason': None, 'remedy': None}]
    >>> withhold([{"name": "cold", "available": True, "reason": None, "remedy": None}],
    ...          of_apart("rank 1 failed"))[0]["reason"]
    'the data-parallel ranks cannot be changed together: rank 1 failed'
    """
    return [
        {**asdict(why), "name": one["name"]}
        if one["available"] and one["name"] not in _NOT_TURNED
        else dict(one)
        for one in found
    ]


PINS_FAILED = "specdeck failed at pinning requests; the engine's log says why"


def lose_pins(found: Iterable[Capability]) -> tuple[Capability, ...]:
    """The capabilities `found` of an engine that drafts for pinned requests since an error.

    >>> [one.available for one in lose_pins([Capability("request_k", True)])]
    [False]
    """
    why = Capability("request_k", False, PINS_FAILED, "restart the engine")
    return take_away(found, ("request_k", "request_rest"), why)


def take_away(
    found: Iterable[Capability], names: Collection[str], why: Capability
) -> tuple[Capability, ...]:
    """The capabilities `found`, without those of `names`, for the reason and remedy of `why`."""
    return tuple(
        replace(why, name=one.name) if one.name in names and one.available else one for one in found
    )


def _live_k(build: Build) -> Capability:
    name = "live_k"
    if build.method is None:
        return Capability(name, False, _NO_DRAFTS, _START_WITH_DRAFTS)
    if lost := by_loss(build.gaps).get("live_k"):
        return Capability(name, False, describe_gaps(lost, build.vllm), REMEDY)
    if build.runner == "V1" and build.method in FIXED_K:
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
    if build.data_parallel > 1:  # vLLM makes ranks of a dense model engines of one rank each
        return Capability(
            name, False, "data-parallel ranks of a mixture-of-experts model must agree on k in "
            "every step, or deadlock", "run with data_parallel_size 1, or one engine for each rank",
        )  # fmt: skip
    if build.drafts_all_or_none:
        return Capability(
            name, True, f"parallel drafting: k can be 0 or {build.k_max}, and nothing between"
        )
    return Capability(name, True, _same_drafting(build))


def _same_drafting(build: Build) -> str | None:
    """Where a smaller k is less to verify, and no less to draft; None where it is."""
    what, k_max = f"the {build.runner} drafter for {build.method}", build.k_max
    if lost := by_loss(build.gaps).get("savings"):
        return f"whether a smaller k drafts less is unknown: {describe_gaps(lost, build.vllm)}"
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
    soft = _like(live_k, "target_only")
    return replace(soft, reason=_WARM) if soft.available and build.can_skip_drafter else soft


def _cold(build: Build, live_k: Capability) -> Capability:
    if live_k.available and (lost := by_loss(build.gaps).get("cold")):
        reason = describe_gaps(lost, build.vllm)
        return Capability("cold", False, reason, f"use the warm fallback, or {REMEDY}")
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
    if lost := by_loss(build.gaps).get("request_k"):
        return Capability("request_k", False, describe_gaps(lost, build.vllm), REMEDY)
    return Capability("request_k", True, _OFF_GRAPHS if build.full_graphs else None)


def _request_rest(build: Build) -> Capability:
    """Whether requests that accept nothing are left without drafts under `goodput`."""
    name, pins = "request_rest", _request_k(build)
    if not pins.available:
        return replace(pins, name=name)
    if build.full_graphs:
        return Capability(
            name, False, "a request without drafts takes every request beside it off the full CUDA "
            "graphs, which costs more than its drafts do",
            "pin such requests yourself where it pays, by specdeck_k",
        )  # fmt: skip
    return Capability(name, True)


def _full_graphs(build: Build) -> tuple[Capability, ...]:
    """How far they reach; an engine without them has nothing to say."""
    if lost := by_loss(build.gaps).get("graph_reach"):
        reason = describe_gaps(lost, build.vllm)
        return (Capability("full_graphs", False, reason, REMEDY),) if build.full_graphs else ()
    if not any(reach.requests for reach in build.graph_reach):
        return ()
    return (Capability("full_graphs", True, describe_all(build.graph_reach)),)


def _cohorts(build: Build) -> tuple[Capability, ...]:
    """Whether drafts are told apart by kind of request; an engine that does has nothing to say."""
    lost = by_loss(build.gaps).get("cohorts")
    return (Capability("cohorts", False, describe_gaps(lost, build.vllm), REMEDY),) if lost else ()


def _calibration(build: Build, live_k: Capability) -> Capability:
    """Whether dummy steps cost what real ones do, and leave nothing behind."""
    name = "calibration"
    if not live_k.available:
        return _like(live_k, name)
    if lost := by_loss(build.gaps).get("calibration"):
        return Capability(name, False, describe_gaps(lost, build.vllm), REMEDY)
    reason = _why_no_dummies(build)
    return Capability(name, False, reason, _BY_SWEEP) if reason else Capability(name, True)


def _why_no_dummies(build: Build) -> str | None:
    """Why dummy steps would tell something else, or leave something behind; None where not."""
    if build.runner != "V1" or build.device != "cpu":
        return (
            "dummy steps were held against real ones on the V1 runner of vLLM's CPU build alone, "
            f"and this is {build.runner} on {build.device}"
        )
    if build.asynchronous or build.stages > 1:
        return (
            "with several steps under way at once, one alone does not take what each of them does"
        )
    if build.method not in _MODEL_DRAFTS or build.parallel_drafting:
        return f"what drafts of method {build.method} cost depends on the text"
    if build.moe:
        return "all dummy tokens are alike, and would go to the same experts"
    if build.kv_connector:
        return "the KV connector would keep what dummy steps write"
    if other := sorted({kind for kind in build.kv_kinds if kind != _PLAIN_CACHE}):
        return f"dummy steps would write into a KV cache that is kept otherwise ({other[0]})"
    return None


def _like(live_k: Capability, name: str) -> Capability:
    """What moves k, and so can no more than an operator can; a mere remark on k is k's own."""
    return replace(live_k, name=name, reason=None if live_k.available else live_k.reason)
