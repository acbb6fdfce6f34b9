"""Every fact about the serving path that vLLM's configuration and this process hold.

vLLM's own fingerprint hashes the computation graph, so that draft length, n-gram
settings, the rejection method and most environment variables leave it unmoved. Here the
whole resolved configuration counts, less what names things, says where they lie or is
measured anew with every start.
"""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from typing import Any

from specdeck import __version__
from specdeck.engine.fingerprint.secrecy import is_secret, redact
from specdeck.engine.fingerprint.sources import numeric_variables
from specdeck.engine.plugin.seam import Build

_SECTIONS = ("model", "cache", "parallel", "scheduler", "load", "offload", "attention", "mamba",
             "kernel", "lora", "speculative", "structured_outputs", "compilation", "quant",
             "reasoning", "diffusion", "watermark", "kv_transfer", "ec_transfer")  # fmt: skip
_TOP = ("additional_config", "optimization_level", "performance_mode")

_ELSEWHERE = frozenset(
    {
        # names and places: the content behind them is digested
        "model", "model_weights", "tokenizer", "served_model_name", "hf_config", "hf_text_config",
        "hf_config_path", "hf_token", "allowed_local_media_path", "allowed_media_domains",
        "download_dir", "revision", "code_revision", "tokenizer_revision",
        # measured or counted anew with every start
        "gpu_memory_utilization", "num_gpu_blocks", "num_cpu_blocks", "kv_cache_size_tokens",
        "kv_cache_max_concurrency", "kv_cache_memory_bytes", "hash_block_size",
        "effective_attention_block_size", "cache_hit_alignment_tokens", "compilation_time",
        "encoder_compilation_time", "enabled_custom_ops", "disabled_custom_ops", "traced_files",
        "static_forward_context", "static_all_moe_layers", "debug_dump_path", "cache_dir",
        "local_cache_dir", "compile_cache_save_format", "instance_id", "engine_id",
        # where the parts run and how they find each other
        "data_parallel_size_local", "data_parallel_rank", "data_parallel_rank_local",
        "data_parallel_master_ip", "data_parallel_rpc_port", "data_parallel_master_port",
        "data_parallel_index", "data_parallel_external_lb", "data_parallel_hybrid_lb",
        "master_addr", "master_port", "node_rank", "rank", "placement_group", "ray_runtime_env",
        "ray_workers_use_nsight", "assigned_physical_gpu_ids", "numa_bind", "numa_bind_nodes",
        "numa_bind_cpus", "distributed_timeout_seconds", "cpu_distributed_timeout_seconds",
        "max_parallel_loading_workers", "kv_ip", "kv_port", "kv_rank", "ec_ip", "ec_port",
        "fault_tolerance_config", "enable_fault_tolerance",
        # how work is handed over, not what is computed
        "renderer_num_workers", "use_tqdm_on_load", "safetensors_prefetch_num_threads",
        "safetensors_prefetch_block_size", "safetensors_load_strategy", "stream_interval",
        "max_num_queued_reqs", "max_num_queued_tokens", "target_model_config",
        "target_parallel_config", "draft_parallel_config",
    }
)  # fmt: skip
_OWN = ("vllm.entrypoints.serve.utils.fingerprint", "vllm.entrypoints.openai.fingerprint")
"""Where vLLM keeps its own fingerprint, the newer place first."""

_DEEPEST = 6


def facts(config: Any, build: Build) -> dict[str, Any]:
    """What is known at once of an engine with the VllmConfig `config`; JSON values only."""
    found = {name: _section(getattr(config, f"{name}_config", None)) for name in _SECTIONS}
    top = {name: plain(getattr(config, name, None)) for name in _TOP}
    return {
        "config": {
            name: value for name, value in {**found, **top}.items() if value not in (None, {})
        },
        "environment": numeric_variables(os.environ),
        "engine": {
            "specdeck": __version__,
            "vllm": build.vllm,
            "commit": _commit(),
            "runner": build.runner,
            "python": platform.python_version(),
            "architecture": platform.machine(),
        },
    }


def sources(config: Any) -> dict[str, Any]:
    """The models and tokenizers whose content belongs to the facts, by role."""
    target, spec = config.model_config, config.speculative_config
    dummy = getattr(config.load_config, "load_format", None) == "dummy"
    models = {"target": _source(target, dummy=dummy)}
    if target.generation_config not in ("auto", "vllm"):
        models["target"]["generation"] = str(target.generation_config)
    tokenizers = {"tokenizer": {"name": target.tokenizer, "revision": target.tokenizer_revision}}
    draft = getattr(spec, "draft_model_config", None)
    if draft is not None and draft is not target and draft.model != target.model:
        models["draft"] = _source(draft, dummy=dummy)
        if draft.tokenizer != target.tokenizer:  # vLLM gives a draft its target's otherwise
            tokenizers["draft_tokenizer"] = {
                "name": draft.tokenizer,
                "revision": draft.tokenizer_revision,
            }
    return {"models": models, "tokenizers": tokenizers}


def _source(model: Any, *, dummy: bool) -> dict[str, Any]:
    # An object store's URL stands in model_weights, and the files beside it in model.
    name = getattr(model, "model_weights", "") or model.model
    return {"name": str(name), "revision": model.revision, "dummy": dummy}


def system_fingerprint(config: Any) -> str | None:
    """vLLM's own fingerprint, as the API server with this VllmConfig puts it in responses.

    The engine core resolves its configuration further and would get another value. None
    where it is switched off or this version has none to give.
    """
    for module in _OWN:
        try:
            value = import_module(module).get_system_fingerprint(config)
        except (ImportError, AttributeError):
            continue
        return None if value is None else str(value)
    return None


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it, without secrets; what lies too deep comes to None.

    >>> plain({"a": (1, None), "api_key": "s", "url": "redis://user:pw@cache"})
    {'a': [1, None], 'url': 'redis://***@cache'}
    """
    if isinstance(value, Enum):  # some of vLLM's are numbers as well
        return value.name
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {
            redact(str(k)): plain(v, depth + 1) for k, v in value.items() if not is_secret(str(k))
        }
    if isinstance(value, set | frozenset):
        return sorted(str(plain(item, depth + 1)) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if dataclasses.is_dataclass(value):
        return _section(value, depth + 1)
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}"
    text = str(value).removeprefix("torch.")  # a dtype, a device
    return redact(text) if " at 0x" not in text and len(text) < 200 else type(value).__name__


def _section(config: Any, depth: int = 0) -> dict[str, Any] | None:
    """The settings of one of vLLM's config objects that are set and count."""
    if config is None or not dataclasses.is_dataclass(config):
        return plain(config) if isinstance(config, Mapping) else None
    found = {}
    for field in dataclasses.fields(config):
        name = field.name
        if name.startswith("_") or name in _ELSEWHERE or is_secret(name):
            continue
        value = plain(getattr(config, name, None), depth)
        if value is not None:
            found[name] = value
    return found


def _commit() -> str | None:
    try:
        from vllm._version import __commit_id__ as commit
    except ImportError:
        return None
    return None if commit is None else str(commit)
