"""The GPUs of this machine, as NVML sees them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from specdeck.engine.metrics.reading import Gpu

_T = TypeVar("_T")


@cache
def _nvml() -> Any:
    """nvidia-ml-py, initialised once for the process; None without the library or a driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def read_gpus(nvml: Callable[[], Any] = _nvml) -> tuple[Gpu, ...] | None:
    """Every GPU at this moment; None where NVML does not answer.

    `nvml` gives the initialised library, or None; a test gives one of its own.
    """
    library = nvml()
    if library is None:
        return None
    count = _ask(library, library.nvmlDeviceGetCount)
    if count is None:
        return None
    return tuple(_gpu(library, index) for index in range(count))


def _gpu(library: Any, index: int) -> Gpu:
    handle = _ask(library, lambda: library.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return Gpu(index, "unknown", None, None, None, None)
    name = _ask(library, lambda: library.nvmlDeviceGetName(handle))
    busy = _ask(library, lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu)
    memory = _ask(library, lambda: library.nvmlDeviceGetMemoryInfo(handle))
    milliwatts = _ask(library, lambda: library.nvmlDeviceGetPowerUsage(handle))
    return Gpu(
        index=index,
        name=name.decode() if isinstance(name, bytes) else (name or "unknown"),
        utilisation=None if busy is None else busy / 100,
        memory_used=None if memory is None else int(memory.used),
        memory_total=None if memory is None else int(memory.total),
        power_w=None if milliwatts is None else milliwatts / 1000,
    )


def _ask(library: Any, question: Callable[[], _T]) -> _T | None:
    """The driver's answer; None for what this GPU or driver does not tell."""
    try:
        return question()
    except library.NVMLError:
        return None
