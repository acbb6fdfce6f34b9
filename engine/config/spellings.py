"""Older and foreign spellings of config keys, as data.

Engine arguments are only translated where the vLLM at hand does not accept the
older name itself, so an older vLLM still gets what its own documents say.
"""

from __future__ import annotations

from typing import Final

SPECULATIVE: Final = "speculative_config"

MOVED: Final[dict[str, tuple[str, ...]]] = {
    "speculative_model": (SPECULATIVE, "model"),
    "num_speculative_tokens": (SPECULATIVE, "num_speculative_tokens"),
    "speculative_method": (SPECULATIVE, "method"),
    "speculative_draft_tensor_parallel_size": (SPECULATIVE, "draft_tensor_parallel_size"),
    "speculative_max_model_len": (SPECULATIVE, "max_model_len"),
    "speculative_model_quantization": (SPECULATIVE, "quantization"),
    "speculative_disable_by_batch_size": (SPECULATIVE, "disable_by_batch_size"),
    "ngram_prompt_lookup_max": (SPECULATIVE, "prompt_lookup_max"),
    "ngram_prompt_lookup_min": (SPECULATIVE, "prompt_lookup_min"),
    "spec_method": (SPECULATIVE, "method"),
    "spec_model": (SPECULATIVE, "model"),
    "spec_tokens": (SPECULATIVE, "num_speculative_tokens"),
    "task": ("runner",),
    "cuda_graph_sizes": ("cudagraph_capture_sizes",),
    "draft_acceptance_threshold": ("orchestration", "draft_acceptance_threshold"),
    "adaptive_draft": ("orchestration", "adaptive_draft"),
    "min_draft_length": ("orchestration", "min_draft_length"),
    "max_draft_length": ("orchestration", "max_draft_length"),
    "fallback_after_low_acceptance": ("orchestration", "fallback_after_low_acceptance"),
    "temperature": ("sampling", "temperature"),
    "top_p": ("sampling", "top_p"),
    "top_k": ("sampling", "top_k"),
    "min_p": ("sampling", "min_p"),
    "repetition_penalty": ("sampling", "repetition_penalty"),
}
"""Keys at the top of a config, and the place where they belong."""

ALWAYS_MOVED: Final = frozenset({"spec_method", "spec_model", "spec_tokens"})
"""vLLM's own shorthands: it accepts them, but they hide the speculation from everything else."""

ABSORBED: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("orchestration", "sampling"): ("sampling",),
    (SPECULATIVE, "draft_acceptance_threshold"): ("orchestration", "draft_acceptance_threshold"),
    (SPECULATIVE, "ngram_prompt_lookup_max"): (SPECULATIVE, "prompt_lookup_max"),
    (SPECULATIVE, "ngram_prompt_lookup_min"): (SPECULATIVE, "prompt_lookup_min"),
    (SPECULATIVE, "speculative_model"): (SPECULATIVE, "model"),
    ("orchestration", "num_speculative_tokens"): (SPECULATIVE, "num_speculative_tokens"),
}
"""Keys inside a block that belong somewhere else."""

GONE: Final[dict[tuple[str, ...], str]] = {
    ("speculative_disable_logprobs",): "vLLM's V1 engine always gives the target's logprobs",
    (SPECULATIVE, "disable_logprobs"): "vLLM's V1 engine always gives the target's logprobs",
    ("speculative_disable_mqa_scorer",): "vLLM has one way to verify drafts",
    (SPECULATIVE, "disable_mqa_scorer"): "vLLM has one way to verify drafts",
    ("spec_decoding_acceptance_method",): "vLLM decides it with rejection_sample_method",
    (SPECULATIVE, "acceptance_method"): "vLLM decides it with rejection_sample_method",
    ("typical_acceptance_sampler_posterior_threshold",): "vLLM dropped typical acceptance",
    ("typical_acceptance_sampler_posterior_alpha",): "vLLM dropped typical acceptance",
    (SPECULATIVE, "posterior_threshold"): "vLLM dropped typical acceptance",
    (SPECULATIVE, "posterior_alpha"): "vLLM dropped typical acceptance",
    ("num_lookahead_slots",): "vLLM reserves the slots itself",
    ("use_v2_block_manager",): "vLLM has one block manager",
    ("preemption_mode",): "vLLM always recomputes",
    ("num_scheduler_steps",): "vLLM dropped multi-step scheduling",
    ("swap_space",): "vLLM no longer swaps to the CPU",
    ("max_seq_len_to_capture",): "vLLM decides it with max_cudagraph_capture_size",
    ("device",): "vLLM's build decides it",
    ("disable_async_output_proc",): "vLLM decides it with async_scheduling",
    ("disable_log_requests",): "vLLM does not log requests unless enable_log_requests says so",
}
"""Keys that no vLLM from 0.26 on knows, and why leaving them out changes nothing."""

SECRET: Final[dict[str, str]] = {
    "api_key": "set VLLM_API_KEY in the environment",
    "hf_token": "set HF_TOKEN in the environment",
}
"""Engine arguments that would put a secret on a command line, and the way around."""

REFUSED: Final[dict[str, str]] = {
    "config": "put its keys here: specdeck checks one file",
    "headless": "leave it out: specdeck talks to the engine's API server",
    "grpc": "leave it out: specdeck talks HTTP to the engine",
    "uds": "leave it out: specdeck talks HTTP on a port",
}
"""Engine arguments under which specdeck could not reach the engine it starts."""

DTYPES: Final[dict[str, str]] = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""Short names of dtypes that vLLM does not take."""
