from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from specdeck.engine.metrics.gpu import read_gpus
from specdeck.engine.metrics.reading import Gpu


class NVMLError(Exception):
    pass


def refuse(*_: Any) -> Any:
    raise NVMLError


def library(**changed: Any) -> SimpleNamespace:
    usual: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H100",
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40, memory=3),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=2**30, total=2**36),
        "nvmlDeviceGetPowerUsage": lambda handle: 350_500,
    }
    return SimpleNamespace(**{**usual, **changed})


def test_a_gpu_is_told_in_shares_bytes_and_watts() -> None:
    assert read_gpus(library) == (Gpu(0, "NVIDIA H100", 0.4, 2**30, 2**36, 350.5),)


def test_without_a_driver_nothing_is_known() -> None:
    assert read_gpus(lambda: None) is None
    assert read_gpus(lambda: library(nvmlDeviceGetCount=refuse)) is None


def test_what_a_gpu_does_not_support_is_none() -> None:
    (gpu,) = read_gpus(lambda: library(nvmlDeviceGetPowerUsage=refuse)) or ()
    assert gpu.power_w is None
    assert gpu.utilisation == 0.4


def test_a_gpu_that_is_lost_stays_in_the_list() -> None:
    lost = library(nvmlDeviceGetHandleByIndex=refuse)
    assert read_gpus(lambda: lost) == (Gpu(0, "unknown", None, None, None, None),)


def test_asking_the_real_library_never_raises() -> None:
    found = read_gpus()
    assert found is None or all(isinstance(gpu, Gpu) for gpu in found)
