"""What dummy steps write to in a worker, kept and put back.

They write the KV of the null block, which is read by nobody, and whatever a drafter notes of its
last step. Random generators are kept as well, though greedy steps draw nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_KEPT = "_specdeck_kept"
"""The attribute of a worker that holds what is kept."""


class Kept(NamedTuple):
    """As it was before the dummy steps."""

    blocks: list[tuple[Any, Any]]
    """The null block of every KV cache, and a copy of it."""
    generator: Any
    """The state of the random generator."""
    depth: int | None
    """The k that the drafter goes by; None where it has none."""


def keep(worker: Any, null: int) -> None:
    """Keeps what dummy steps change in `worker`, one of the V1 runner on a CPU.

    `null` is the number of the null block.
    """
    import torch

    runner = worker.model_runner
    count = runner.kv_cache_config.num_blocks
    blocks = []
    for cache in runner.kv_caches:
        for dimension, size in enumerate(cache.shape):
            if size == count:
                block = cache.select(dimension, null)
                blocks.append((block, block.clone()))
                break
    depth = getattr(runner.drafter, "num_speculative_tokens", None)
    setattr(worker, _KEPT, Kept(blocks, torch.get_rng_state(), depth))


def restore(worker: Any) -> None:
    """Puts back what `keep` kept; nothing where it did not."""
    import torch

    kept: Kept | None = getattr(worker, _KEPT, None)
    if kept is None:
        return
    setattr(worker, _KEPT, None)
    for block, before in kept.blocks:
        block.copy_(before)
    torch.set_rng_state(kept.generator)
    if kept.depth is not None:
        worker.model_runner.drafter.num_speculative_tokens = kept.depth
