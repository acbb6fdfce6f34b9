"""What is told of requests, over vLLM's own scheduler and a model that draws tokens at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.plugin.cohorts import read_cohorts
from specdeck.engine.plugin.request_counts import RequestCounts

pytestmark = pytest.mark.filterwarnings("ignore")  # importing it warns

MODELS = Path(__file__).parents[2] / "sample_configs" / "models"
K = 4
BLOCK = 16


@pytest.fixture(scope="module")
def config() -> Any:
    """Of an engine that drafts, and has few seats."""
    from vllm.engine.arg_utils import EngineArgs

    args = EngineArgs(
        model=str(MODELS / "target"), max_model_len=1024, max_num_seqs=6, block_size=BLOCK,
        max_num_batched_tokens=1024, dtype="bfloat16", async_scheduling=False,
        speculative_config={
            "method": "draft_model", "model": str(MODELS / "draft"), "num_speculative_tokens": K,
        },
    )  # fmt: skip
    return args.create_engine_config()


def add(some: list[int], more: list[int]) -> list[int]:
    return [a + b for a, b in zip(some, more, strict=True)]


def make_scheduler(config: Any, blocks: int) -> Any:
    import torch
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    config.cache_config.num_gpu_blocks = blocks
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=True,
    )


def requests(rng: random.Random, count: int) -> Iterator[Any]:
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK, sha256)
    for number in range(count):
        params = SamplingParams(
            max_tokens=rng.randrange(1, 120), temperature=rng.choice([0.0, 0.7]), ignore_eos=True,
            extra_args={"specdeck_k": 2} if number % 5 == 0 else None,
        )  # fmt: skip
        prompt = [rng.randrange(6)] + [7] * rng.choice([5, 40, 200, 400])
        yield Request(f"r{number}", prompt, params, None, block_hasher=hasher)


def test_sums_are_those_of_vllms_scheduler_through_preemptions_and_aborts(config: Any) -> None:
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import RequestStatus

    scheduler, rng = make_scheduler(config, blocks=44), random.Random(3)
    counts = RequestCounts(scheduler, K)
    assert counts.available, counts.gaps
    drafts, drafted, accepted, preempted = 0, [0] * K, [0] * K, set[str]()

    def told() -> Any:
        return read_cohorts(
            {"k_max": K, "instance": "i", "t": 1.0, "cells": counts.cells.cells(),
             "folded": counts.cells.list_folded(), "unfinished": counts.sum_unfinished(),
             "drafts": drafts, "drafted_per_position": drafted, "accepted_per_position": accepted}
        )  # fmt: skip

    for request in requests(rng, 40):
        scheduler.add_request(request)
    for step in range(3000):
        if not scheduler.has_requests():
            break
        output = scheduler.schedule()
        ids = list(output.num_scheduled_tokens)
        sampled = []
        for name in ids:
            request = scheduler.requests[name]
            given = output.scheduled_spec_decode_tokens.get(name, ())
            whole = request.num_computed_tokens >= request.num_tokens
            sampled.append([9] * (1 + rng.randrange(len(given) + 1)) if whole or given else [])
        runner = ModelRunnerOutput(ids, {name: n for n, name in enumerate(ids)}, sampled)
        for each in scheduler.update_from_output(output, runner).values():
            stats = each.scheduler_stats and each.scheduler_stats.spec_decoding_stats
            if stats:
                drafts += stats.num_drafts
                drafted = add(drafted, stats.num_draft_tokens_per_pos)
                accepted = add(accepted, stats.num_accepted_tokens_per_pos)
        running = [each.request_id for each in scheduler.running]
        k = rng.randrange(K + 1)
        scheduler.update_draft_token_ids(DraftTokenIds(running, [[9] * k for _ in running]))
        preempted |= {n for n, each in scheduler.requests.items() if each.num_preemptions}
        if step % 40 == 20:  # as leaving cold target-only does
            scheduler.reset_prefix_cache(reset_running_requests=True)
        if step % 17 == 5 and scheduler.requests:
            gone = rng.choice(sorted(scheduler.requests))
            scheduler.finish_requests(gone, RequestStatus.FINISHED_ABORTED)
        found = told()
        both = found.sum_finished(), found.unfinished
        assert sum(each.drafts for each in both) == drafts
        for name, sums in (("drafted_per_position", drafted), ("accepted_per_position", accepted)):
            parts = zip(*(getattr(each, name) for each in both), strict=True)
            assert [sum(at) for at in parts] == sums
        assert len(counts.active()) == len(scheduler.requests)
    assert not scheduler.requests
    found = told()
    assert found.sum_finished().requests == 40
    assert found.unfinished.drafts == 0
    assert found.sum_finished().preemptions > 0
    by_word = found.by_word()
    assert by_word["finish", "abort"].requests > 3
    assert by_word["finish", "length"].requests > 3
    assert by_word["pinned", "yes"].requests == 8
    assert preempted
    assert any(word == "75-100%" for by, word in by_word if by == "cached")
