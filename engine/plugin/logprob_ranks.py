"""The rank of a token among all, counted on a CPU without compiling anything.

vLLM has the count compiled when the first request asks for log-probabilities. On a CPU that takes
a C++ compiler and the better part of a minute, in which nothing is served, and an engine without
one ends there. The same function as it is written counts the same, as it counts whole numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

_NAME = "batched_count_greater_than"
_MODULES = "vllm.v1.sample.sampler", "vllm.v1.sample.ops.logprobs"
"""Who calls it, and where it is defined: both have it under its name."""
MOST = 1 << 26
"""Values that are compared at once: the answers to that take a byte each."""


def install(worker: Any, *, modules: Mapping[str, Any] = sys.modules) -> None:
    """Has a worker on a CPU count ranks without a compiler; safe to call again.

    Workers on other devices, and a vLLM that does not have the count compiled, are left alone.
    """
    if getattr(getattr(worker, "device", None), "type", None) != "cpu":
        return
    for module in map(modules.get, _MODULES):
        found = getattr(module, _NAME, None)
        plain = getattr(found, "__wrapped__", None)  # as torch.compile leaves it
        if plain is not None:
            setattr(module, _NAME, _count_in_parts(plain))


def _count_in_parts(plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`plain`, given as many rows at once as memory is spared for."""

    def count(x: Any, values: Any) -> Any:
        rows = max(1, MOST // max(1, x.shape[1]))
        if x.shape[0] <= rows:
            return plain(x, values)
        found = values[:, 0].long()  # as many whole numbers, each of which is written over
        for start in range(0, x.shape[0], rows):
            part = slice(start, start + rows)
            found[part] = plain(x[part], values[part])
        return found

    return count
