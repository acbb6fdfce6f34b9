"""Which GPU a run is on, by what commands say."""

from collections.abc import Sequence

import pytest
from benchmarks.gpu.machine import NoGpu, find_gpu


def test_the_driver_names_the_gpu() -> None:
    found = find_gpu(kind="gpu", ask=lambda command: "NVIDIA H100, 580.65.06, 81559 MiB")
    assert found == "NVIDIA H100 (81559 MiB, driver 580.65.06)"


def test_without_nvidia_smi_torch_is_asked() -> None:
    def ask(command: Sequence[str]) -> str | None:
        return None if command[0] == "nvidia-smi" else "NVIDIA H100"

    assert find_gpu(kind="gpu", ask=ask) == "NVIDIA H100"


def test_a_build_for_gpus_without_one_is_no_machine_for_the_small_form() -> None:
    with pytest.raises(NoGpu):
        find_gpu(kind="gpu", ask=lambda command: None)


def test_a_build_for_the_cpu_asks_nobody() -> None:
    def ask(command: Sequence[str]) -> str | None:
        raise AssertionError(command)

    assert find_gpu(kind="cpu", ask=ask) is None
