"""k by batch size, as vLLM's `num_speculative_tokens_per_batch_size` wants it."""

from __future__ import annotations

import json
from collections.abc import Mapping

KEY = "num_speculative_tokens_per_batch_size"


def tiers(best: Mapping[int, int], max_num_seqs: int) -> list[list[int]]:
    """Tiers `[first, last, k]` that cover 1…max_num_seqs without a gap.

    `best` has the k for the batch sizes that were measured; one between two of them takes the
    k of the smaller, one outside them that of the nearest. Raises ValueError without any.

    >>> tiers({1: 5, 4: 5, 8: 3, 16: 0}, 32)
    [[1, 7, 5], [8, 15, 3], [16, 32, 0]]
    >>> tiers({8: 3}, 4)
    [[1, 4, 3]]
    """
    if not best:
        raise ValueError("no batch size was measured")
    if max_num_seqs < 1:
        raise ValueError(f"max_num_seqs={max_num_seqs} is less than 1")
    found: list[list[int]] = []
    for size, k in sorted(best.items()):
        first = max(1, size) if found else 1
        if first > max_num_seqs:
            break
        if found:
            found[-1][1] = first - 1
            if found[-1][2] == k:
                continue
        found.append([first, max_num_seqs, k])
    found[-1][1] = max_num_seqs
    return found


def line(schedule: list[list[int]]) -> str:
    """The schedule for a speculative_config in YAML or JSON.

    >>> line([[1, 7, 5], [8, 32, 3]])
    '"num_speculative_tokens_per_batch_size": [[1, 7, 5], [8, 32, 3]]'
    """
    return f'"{KEY}": {json.dumps(schedule)}'
