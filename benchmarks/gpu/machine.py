"""The machine that the program runs on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import requires

from benchmarks.run import machine

from specdeck.engine.config.vllm_args import find_version
from specdeck.engine.launch.machine import BuildKind, detect_build

ON_GPU = "on a GPU: "
"""Stands in a section of the page that was run on one."""

_ASK_DRIVER = [
    "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader",
]  # fmt: skip
_ASK_TORCH = [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())"]


class NoGpu(Exception):
    """vLLM is a build for GPUs, and there is none."""


def ask(command: Sequence[str]) -> str | None:
    """The first line that a command prints; None where it fails or does not exist."""
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = asked.stdout.splitlines()
    return lines[0] if lines and not asked.returncode else None


def find_gpu(
    *, kind: BuildKind | None = None, ask: Callable[[Sequence[str]], str | None] = ask
) -> str | None:
    """The GPU that engines will run on, with its driver; None where vLLM runs on the CPU.

    Asks commands, since what a Python of a GPU machine has for it differs. Raises NoGpu for
    a vLLM that requires one where none answers.
    """
    if (kind or detect_build().kind) == "cpu":
        return None
    if told := ask(_ASK_DRIVER):
        name, driver, memory = (word.strip() for word in told.split(","))
        return f"{name} ({memory}, driver {driver})"
    if told := ask(_ASK_TORCH):
        return told.strip()
    raise NoGpu("vLLM is no build for the CPU, and neither nvidia-smi nor torch names a GPU")


def describe_machine(gpu: str | None) -> str:
    """The machine, for a section of the page."""
    where = machine() if gpu is None else f"{ON_GPU}{gpu} · {machine()}"
    return f"{describe_vllm()} · {where}"


def describe_vllm() -> str:
    """vLLM and the torch it runs on, which may not be the one that its makers test it with."""
    build, torch = detect_build(), find_version("torch")
    wanted = _find_wanted_torch(requires(build.distribution) if build.distribution else None)
    asked = f", made for {wanted}" if torch and wanted and wanted != torch else ""
    return f"vLLM {build.version or 'unknown'} on torch {torch or 'unknown'}{asked}"


def _find_wanted_torch(requirements: Sequence[str] | None) -> str | None:
    """The first version of torch that is pinned.

    >>> _find_wanted_torch(["httpx", "torch==2.13.0; platform_system == 'Linux'"])
    '2.13.0'
    """
    for requirement in requirements or ():
        if found := re.match(r"torch==([\w.+]+)", requirement):
            return found[1]
    return None
