"""How it is known that something works on an engine: run, or read in vLLM's source."""

from __future__ import annotations

from typing import Literal, NamedTuple

from specdeck.engine.plugin.engine import Build

How = Literal["run here", "run on a GPU", "read in source"]
"""`run here` is on vLLM's build for a CPU, by the tests in `tests/live`."""


class Run(NamedTuple):
    """Engines that were run with every change made to them."""

    vllm: str
    runner: str
    method: str


RUN_HERE = frozenset({Run("0.32.0", "V1", "draft_model")})
RUN_ON_A_GPU: frozenset[Run] = frozenset()


def how_known(build: Build) -> How:
    """How what is said of such an engine is known.

    >>> build = Build("0.32.0+cpu", "demo", "draft_model", "V1", 5, device="cpu")
    >>> how_known(build)
    'run here'
    """
    kind = Run(build.vllm.partition("+")[0], build.runner, build.method or "")
    if build.device == "cpu" and kind in RUN_HERE:
        return "run here"
    return "run on a GPU" if build.device == "cuda" and kind in RUN_ON_A_GPU else "read in source"
