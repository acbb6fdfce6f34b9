"""The drafter's side of k, inside each worker.

vLLM's V1 proposers obey the k of the scheduler; two things are added here. A cold
target-only leaves the drafter's one forward pass at k = 0 out as well. And the V2
runner's stand-alone drafter, which makes num_speculative_tokens passes at every k and
has the surplus masked, is told the k so that less k is less work.
"""

from __future__ import annotations

import functools
from typing import Any

from specdeck.engine.plugin.contract import by_loss
from specdeck.engine.plugin.take_hold import find_gaps

_OBEYING_V2 = frozenset({"TargetDependentARSpeculator", "StandaloneARSpeculator"})
"""V2 speculators whose work falls with k (the second one after wrapping), unless all of it is in
one CUDA graph."""

_WRAPPED = "_specdeck_skip"


def install(worker: Any) -> dict[str, Any]:
    """Wraps the worker's drafter once; says what it is and what it can.

    `worker` is vLLM's worker (any rank); the reply is msgpack-able.
    """
    drafter = _drafter(worker)
    found_gaps = find_gaps({"WorkerBase": worker, type(drafter).__name__: drafter}, "worker")
    gaps = [[gap.row.key, list(gap.missing)] for gap in found_gaps]
    if drafter is None:
        return {
            "drafter": None, "obeys": True, "skippable": False, "captured": None, "gaps": gaps,
        }  # fmt: skip
    name, names = type(drafter).__name__, {cls.__name__ for cls in type(drafter).__mro__}
    wrapper = None
    if "SpecDecodeBaseProposer" in names:
        obeys, wrapper = True, None if "Step3p5MTPProposer" in names else _proposer_v1
    elif names & _OBEYING_V2:
        obeys, wrapper = True, _speculator_v2
    else:
        obeys = name == "NgramProposer"
    if {"live_k", "cold"} & by_loss(found_gaps).keys():
        wrapper = None
    if wrapper is not None and not hasattr(drafter, _WRAPPED):
        setattr(drafter, _WRAPPED, False)
        drafter.propose = wrapper(drafter, drafter.propose)
    captured = sorted(found) if (found := captured_depths(drafter)) else None
    return {
        "drafter": name, "obeys": obeys, "skippable": wrapper is not None, "captured": captured,
        "gaps": gaps,
    }  # fmt: skip


def captured_depths(drafter: Any) -> frozenset[int]:
    """The k's for which the whole of a V2 drafter's loop is in one CUDA graph.

    Empty where its passes are run one by one, so that they follow k. The capture replays as
    many as it was made of: without a schedule of k it was made of k_max, and any k from 2
    on replays that (`SpeculatorCudaGraphManager.specialize_spec_tokens`).
    """
    manager = getattr(drafter, "decode_cudagraph_manager", None)
    graphs = getattr(manager, "graphs", None)
    if not graphs or not getattr(drafter, "supports_decode_metadata_update", False):
        return frozenset()
    if not drafter.speculative_config.uses_dynamic_speculative_decoding():
        return frozenset({int(drafter.num_speculative_steps)})
    depths = (getattr(description, "num_speculative_tokens", None) for description in graphs)
    return frozenset(int(depth) for depth in depths if depth)


def skip(worker: Any, on: bool) -> None:
    """Leaves the drafter out of steps with k = 0, or takes it back in."""
    drafter = _drafter(worker)
    if drafter is not None and hasattr(drafter, _WRAPPED):
        setattr(drafter, _WRAPPED, on)


def _drafter(worker: Any) -> Any:
    runner = getattr(worker, "model_runner", None)
    return getattr(runner, "drafter", None) or getattr(runner, "speculator", None)


def _proposer_v1(drafter: Any, propose: Any) -> Any:
    """V1: at k = 0 no forward pass while cold; the result is what k = 0 gives when warm."""

    @functools.wraps(propose)
    def propose_or_skip(*args: Any, **kwargs: Any) -> Any:
        if getattr(drafter, _WRAPPED) and kwargs.get("num_speculative_tokens") == 0:
            drafter.num_speculative_tokens = 0
            drafter._last_draft_probs = None  # noqa: SLF001  # what vLLM's own propose does first
            following = kwargs["next_token_ids"]
            return following.new_empty((following.shape[0], 0)).long()
        return propose(*args, **kwargs)

    return propose_or_skip


def _speculator_v2(drafter: Any, propose: Any) -> Any:
    """V2: the scheduler's k bounds the passes; the full-width buffer is returned, because the
    runner writes it into rows of num_speculative_tokens and masks what is beyond k."""
    standalone = any(cls.__name__ == "StandaloneARSpeculator" for cls in type(drafter).__mro__)

    @functools.wraps(propose)
    def propose_or_skip(input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        k = kwargs.get("num_speculative_tokens")
        if k is None or kwargs.get("dummy_run"):
            return propose(input_batch, *args, **kwargs)
        if k == 0 and getattr(drafter, _WRAPPED):
            return drafter.draft_tokens[: input_batch.num_reqs]
        if not standalone:
            return propose(input_batch, *args, **kwargs)
        steps = drafter.num_speculative_steps
        drafter.num_speculative_steps = max(k, 1)
        try:
            propose(input_batch, *args, **kwargs)
        finally:
            drafter.num_speculative_steps = steps
        return drafter.draft_tokens[: input_batch.num_reqs]

    return propose_or_skip
