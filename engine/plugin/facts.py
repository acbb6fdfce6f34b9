"""Every fact about the serving path that can be read inside the engine's process.

vLLM's own fingerprint hashes the computation graph, so that draft length, n-gram
settings, the rejection method and most environment variables leave it unmoved.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from specdeck import __version__
from specdeck.engine.plugin.seam import Build

_MODEL = ("model", "revision", "tokenizer", "tokenizer_revision", "dtype", "quantization",
          "max_model_len", "seed", "enforce_eager", "generation_config",
          "override_generation_config", "logprobs_mode")  # fmt: skip
_SPECULATIVE = ("method", "model", "revision", "num_speculative_tokens", "quantization",
                "num_speculative_tokens_per_batch_size", "prompt_lookup_max", "prompt_lookup_min",
                "rejection_sample_method", "draft_sample_method", "draft_tensor_parallel_size",
                "disable_padded_drafter_batch", "synthetic_acceptance_rates",
                "synthetic_acceptance_length")  # fmt: skip
_CACHE = ("block_size", "cache_dtype", "enable_prefix_caching")
_SCHEDULER = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "async_scheduling",
)
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
             "enable_expert_parallel")  # fmt: skip
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
_NOT_NUMERIC = frozenset({"VLLM_PLUGINS", "VLLM_NO_USAGE_STATS", "VLLM_HOST_IP", "VLLM_PORT"})
_PREFIXES = ("VLLM_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "NCCL_", "OMP_", "MKL_")


def facts(config: Any, build: Build) -> dict[str, Any]:
    """What is known of an engine with the VllmConfig `config`; JSON values only."""
    spec = config.speculative_config
    return {
        "specdeck": __version__,
        "vllm": build.vllm,
        "runner": build.runner,
        "model": _fields(config.model_config, _MODEL),
        "speculative": _fields(spec, _SPECULATIVE) if spec else None,
        "cache": _fields(config.cache_config, _CACHE),
        "scheduler": _fields(config.scheduler_config, _SCHEDULER),
        "parallel": _fields(config.parallel_config, _PARALLEL),
        "attention_backend": _text(
            getattr(getattr(config, "attention_config", None), "backend", None)
        ),
        "compilation_mode": _text(getattr(config.compilation_config, "mode", None)),
        "cudagraph_mode": _text(getattr(config.compilation_config, "cudagraph_mode", None)),
        "environment": numeric_variables(os.environ),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **_torch(),
    }


def numeric_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may change what is computed; secrets and paths of plugins never.

    >>> numeric_variables({"VLLM_BATCH_INVARIANT": "1", "VLLM_API_KEY": "s", "HOME": "/root"})
    {'VLLM_BATCH_INVARIANT': '1'}
    """
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES)
        and name not in _NOT_NUMERIC
        and not any(word in name for word in _SECRET)
    }


def system_fingerprint(config: Any) -> str | None:
    """vLLM's own fingerprint, as the API server with this VllmConfig puts it in responses.

    The engine core resolves its configuration further and would get another value. None
    where it is switched off or this version has none to give.
    """
    try:
        from vllm.entrypoints.serve.utils.fingerprint import get_system_fingerprint
    except ImportError:
        return None
    value = get_system_fingerprint(config)
    return None if value is None else str(value)


def _fields(config: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _plain(getattr(config, name, None)) for name in names}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _text(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(getattr(value, "name", value))


def _torch() -> dict[str, Any]:
    import torch

    cuda = torch.cuda.is_available()
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
    }
