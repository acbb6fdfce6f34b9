"""Whether an engine's weights and cache fit into what is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from specdeck.engine.config.config import Config
from specdeck.engine.launch import weights
from specdeck.engine.launch.machine import Gpu, Machine

_GIB = 1 << 30
_PROCESSES = int(1.2 * _GIB)
"""What the processes of a CPU engine take besides weights and cache, measured on a small model."""

_UTILIZATION = 0.92
"""vLLM's default share of a GPU."""

Folder = Callable[[str, Mapping[str, str]], Path | None]
Line = tuple[Literal["ok", "notice", "warning", "error"], str, str, str | None]
"""Level, name, message and remedy of a finding."""


def memory(
    config: Config, machine: Machine, environment: Mapping[str, str], folder: Folder
) -> Iterator[Line]:
    """What there is to say about memory; `folder` finds a model's files."""
    models = [model for model in (config.model, config.draft) if model]
    folders = [found for model in models if (found := folder(model, environment)) is not None]
    sizes = [size for found in folders if (size := weights.size(found)) is not None]
    if len(sizes) < len(models):
        yield ("notice", "memory", "not checked: not all weights are on this machine", None)
    elif machine.build.kind == "cpu" or not machine.gpus:
        yield from _host(sum(sizes), machine, environment)
    else:
        yield from _cards(sum(sizes), config, machine.gpus)


def _host(size: int, machine: Machine, environment: Mapping[str, str]) -> Iterator[Line]:
    if machine.memory_free is None:
        return
    try:
        cache = float(environment.get("VLLM_CPU_KVCACHE_SPACE") or 1) * _GIB
    except ValueError:
        remedy = "set VLLM_CPU_KVCACHE_SPACE to a number of GiB"
        yield ("error", "memory", "VLLM_CPU_KVCACHE_SPACE is not a number", remedy)
        return
    wanted, free = size + cache, machine.memory_free
    said = f"weights and cache take {_gib(wanted)} of {_gib(free)} that are free"
    if wanted > free:
        remedy = "lower VLLM_CPU_KVCACHE_SPACE, or end something else"
        yield ("error", "memory", said, remedy)
    elif wanted + _PROCESSES > free:
        yield ("warning", "memory", f"{said}: it will be tight", "end something else first")
    else:
        yield ("ok", "memory", said, None)


def _cards(size: int, config: Config, gpus: tuple[Gpu, ...]) -> Iterator[Line]:
    args = config.engine_args
    ranks = args.get("tensor_parallel_size", 1) * args.get("pipeline_parallel_size", 1)
    share = args.get("gpu_memory_utilization", _UTILIZATION)
    each = size / ranks
    for index, gpu in enumerate(gpus[:ranks]):
        claimed = share * gpu.total
        if each > claimed:
            message = f"GPU {index}: weights take {_gib(each)}, more than its {_gib(claimed)}"
            remedy = "raise tensor_parallel_size, or take a smaller or quantised model"
            yield ("error", "memory", message, remedy)
            return
        if claimed > gpu.free and "kv_cache_memory_bytes" not in args:
            message = (
                f"GPU {index}: {_gib(gpu.free)} are free, and vLLM would claim {_gib(claimed)}"
            )
            remedy = f"set gpu_memory_utilization below {gpu.free / gpu.total:.2f}, or free the GPU"
            yield ("error", "memory", message, remedy)
            return
    yield ("ok", "memory", f"weights take {_gib(each)} of each GPU", None)


def _gib(size: float) -> str:
    """Bytes as GiB.

    >>> _gib(3 * 2**29), _gib(5 * 2**20)
    ('1.5 GiB', '5 MiB')
    """
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / (1 << 20):.0f} MiB"
