"""The engines that the program starts: what each has that the others have not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.gpu.eagle_head import write_head
from benchmarks.gpu.parts import MAIN

MODELS = Path(__file__).parents[2] / "sample_configs" / "models"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to start an engine."""

    name: str
    method: Literal["draft_model", "eagle"] | None = "draft_model"
    """None: no speculation."""
    tiers: bool = False
    """Whether CUDA graphs are captured for every k."""
    eager: bool = False
    invariant: bool = False
    """Whether vLLM's kernels are to be indifferent to the batch."""
    plugin: bool = True
    probe: bool = False
    """Whether passes of the drafter are counted inside the engine."""


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("tiers", tiers=True),
        Variant("plain"),
        Variant("eager", eager=True),
        Variant("target", method=None),
        Variant("invariant", tiers=True, invariant=True),
        Variant("invariant-target", method=None, invariant=True),
        Variant("stock", plugin=False),
        Variant("probed", tiers=True, probe=True),
        Variant("probed-eagle", method="eagle", tiers=True, probe=True),
        Variant("probed-eagle-plain", method="eagle", probe=True),
        Variant("cpu", eager=True, probe=True),
        Variant("cpu-target", method=None, eager=True),
        Variant("cpu-stock", eager=True, plugin=False),
    )
}

ON_GPU: Mapping[str, tuple[str, ...]] = {MAIN: ("tiers", "plain", "eager")}
"""What a role is played by, the best that starts; any other by the variant of its name."""

ON_CPU: Mapping[str, tuple[str, ...] | str] = {
    MAIN: ("cpu",),
    "plain": ("cpu",),
    "probed": ("cpu",),
    "target": ("cpu-target",),
    "stock": ("cpu-stock",),
    "invariant": "VLLM_BATCH_INVARIANT is for CUDA kernels",
    "invariant-target": "VLLM_BATCH_INVARIANT is for CUDA kernels",
    "probed-eagle": "the V2 runner is for CUDA",
    "probed-eagle-plain": "the V2 runner is for CUDA",
}
"""The same in the small form, or the reason why nothing plays it."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What holds for all engines of a run."""

    folder: Path
    """Where configs, logs and models are made."""
    gpu: str | None = None
    """The GPU and its driver; None on a machine without one."""
    small: bool = False
    layers: int = 32
    """Of the target; 0 leaves it as it ships."""
    runner: Literal["auto", "v1", "v2"] = "auto"
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    """Over those of every variant."""

    @property
    def k_max(self) -> int:
        """Of every engine that speculates."""
        return 3 if self.small else 5

    @property
    def seats(self) -> int:
        """Of every engine: the most requests in a step."""
        return 16 if self.small else 256

    @property
    def length(self) -> int:
        """The most tokens of a request: the models know no more than 2048."""
        return 1024 if self.small else 2048

    def find_variants(self, role: str) -> tuple[Variant, ...] | str:
        """Those that can play a role here, the best one first, or why there is none."""
        if self.gpu is not None:
            names: tuple[str, ...] | str = ON_GPU.get(role, (role,))
        else:
            names = ON_CPU[role]
        return names if isinstance(names, str) else tuple(VARIANTS[name] for name in names)


OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    # They compile or fetch what a machine without a network lacks.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_DEEP_GEMM": "0",
}
"""Variables of every engine, unless the caller's environment has them."""


def build_config(variant: Variant, setup: Setup) -> dict[str, Any]:
    """The config of a variant, as specdeck reads it."""
    config: dict[str, Any] = {
        "model": str(MODELS / "target"),
        "served_model_name": "demo",
        "dtype": "bfloat16",  # FlashAttention refuses float32
        "max_model_len": setup.length,
        "max_num_seqs": setup.seats,
        # A model that knows nothing would write white space without an end.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "max_logprobs": 5,
        "seed": 0,
        "environment": dict(OFFLINE),
    }
    if setup.gpu is None:
        config |= {"block_size": 32}
    else:
        config |= {
            "attention_backend": "FLASH_ATTN",
            # Several stand on one GPU at once: each takes what it is given.
            "gpu_memory_utilization": 0.1,
            "kv_cache_memory_bytes": 8 << 30,
        }
    if variant.eager:
        config["enforce_eager"] = True
    if setup.layers:
        config["deepen"] = {"layers": setup.layers}
    if variant.method is not None:
        config["speculative_config"] = {
            "method": variant.method,
            "model": str(_draft(variant.method, setup)),
            "num_speculative_tokens": setup.k_max,
        }
        config["orchestration"] = {"graphs_per_k": variant.tiers}
    return config | dict(setup.engine_args)


def _draft(method: str, setup: Setup) -> Path:
    if method == "draft_model":
        return MODELS / "draft"
    return write_head(MODELS / "target", setup.folder / "eagle-head")


def write_config(variant: Variant, setup: Setup) -> Path:
    """Writes the config of a variant; its path."""
    path = setup.folder / f"{variant.name}.yaml"
    path.write_text(json.dumps(build_config(variant, setup), indent=2))
    return path


def choose_variables(variant: Variant, setup: Setup) -> dict[str, str]:
    """What must stand in the engine's environment, whatever the caller's says."""
    found = {"VLLM_CACHE_ROOT": str(setup.folder / "cache" / variant.name)}
    if setup.gpu is not None:
        found["VLLM_BATCH_INVARIANT"] = "1" if variant.invariant else "0"
    if setup.runner != "auto":
        found["VLLM_USE_V2_MODEL_RUNNER"] = "1" if setup.runner == "v2" else "0"
    return found
