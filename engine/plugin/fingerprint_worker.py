"""What only a worker's process can tell: its device, its kernels and its libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdeck.engine.fingerprint.sources import parse_mapped
from specdeck.engine.plugin.facts import plain


def told(worker: Any) -> dict[str, Any]:
    """Facts and the paths of mapped libraries; called once, after the engine warmed up."""
    return {
        "device": {**_torch(), **_device()},
        "attention": attention_backends(worker),
        "libraries": parse_mapped(_maps()),
    }


def attention_backends(worker: Any) -> list[str]:
    """The backends that the layers came to use, each once.

    The runners keep them in different places; an empty list says nothing was found.
    """
    groups = getattr(getattr(worker, "model_runner", None), "attn_groups", None) or ()
    found = set()
    for group in _flat(groups):
        backend = getattr(group, "backend", None)
        if backend is not None:
            found.add(str(plain(backend)).rpartition(".")[2])
    return sorted(found)


def _flat(groups: Any) -> Any:
    for group in groups:
        if isinstance(group, list | tuple):
            yield from _flat(group)
        else:
            yield group


def _torch() -> dict[str, Any]:
    """torch's version, switches and threads: sums are split by the number of threads."""
    import torch

    return {
        "torch": torch.__version__,
        "torch_commit": torch.version.git_version,
        "threads": torch.get_num_threads(),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()),
    }


def _device() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        capability = getattr(torch.backends.cpu, "get_cpu_capability", None)
        return {"name": "cpu", "capability": capability() if capability else None}
    major, minor = torch.cuda.get_device_capability()
    switches: dict[str, Callable[[], Any]] = {
        "tf32_matmul": lambda: torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": lambda: torch.backends.cudnn.allow_tf32,
        "fp16_reduced": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
    }
    return {
        "name": torch.cuda.get_device_name(),
        "capability": f"{major}.{minor}",
        "cuda": torch.version.cuda or torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),
        **{name: _or_none(read) for name, read in switches.items()},
    }


def _or_none(read: Callable[[], Any]) -> Any:
    """Builds of torch leave some of these out; a switch may refuse to be read."""
    try:
        return plain(read())
    except (AttributeError, RuntimeError, TypeError):
        return None


def _maps() -> str:
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
