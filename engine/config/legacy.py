"""Older and foreign spellings of config keys, and how a document is rewritten in today's.

Engine arguments are only translated where the vLLM at hand does not accept the
older name itself, so an older vLLM still gets what its own documents say.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from specdeck.engine.config.config import Keys
from specdeck.engine.config.yaml_source import Document, quote
from specdeck.engine.protocol.methods import FIXED_K, SCHEDULE, SPECULATIVE, method_of

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

DTYPES: Final[dict[str, str]] = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""Short names of dtypes that vLLM does not take."""

_BLOCKS = (SPECULATIVE, "orchestration", "sampling", "alerts", "attach", "deepen", "fingerprint")
_WIDEST_BATCH = 1024
"""The end of a schedule's last tier; vLLM cuts it to max_num_seqs."""


def translate(document: Document, accepted: Collection[str]) -> None:
    """Rewrites `document` as today's vLLM and specdeck spell it, with a notice for each change.

    `accepted` are vLLM's engine arguments. Keys that mean nothing stay as they are; two
    spellings of one thing that differ are an error of the document.
    """
    _read_json(document)
    _to_snake_case(document)
    _move_keys(document, accepted)
    _drop_gone(document, accepted)
    _limit_batch_size(document)
    _rewrite_values(document, accepted)


def _has(document: Document, keys: Keys) -> bool:
    block = document.data if len(keys) == 1 else document.data.get(keys[0])
    return isinstance(block, dict) and keys[-1] in block


def _take(document: Document, keys: Keys) -> object:
    block = document.data if len(keys) == 1 else document.data[keys[0]]
    return block.pop(keys[-1])


def _move(document: Document, old: Keys, new: Keys) -> None:
    """Puts the value of `old` at `new`; two different values there are an error."""
    line = document.lines.get(old)
    value = _take(document, old)
    block: Any = document.data
    if len(new) == 2:
        if document.data.get(new[0]) is None:
            document.data[new[0]] = {}
            document.lines.setdefault(new[:1], line or 1)
        block = document.data[new[0]]
    if not isinstance(block, dict):
        return  # the block itself is wrong and is refused as such
    if block.get(new[-1], value) != value:
        message = f"`{'.'.join(old)}` and `{'.'.join(new)}` differ"
        document.refuse(old, message, "keep one of them")
        return
    block[new[-1]] = value
    if line is not None:
        document.lines[new] = line
    for keys in [k for k in document.lines if k[: len(old)] == old and k != old]:
        document.lines[(*new, *keys[len(old) :])] = document.lines[keys]


def _read_json(document: Document) -> None:
    """vLLM takes speculative_config as JSON text as well."""
    text = document.data.get(SPECULATIVE)
    if not isinstance(text, str):
        return
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            document.data[SPECULATIVE] = value


def _to_snake_case(document: Document) -> None:
    """The spelling of vLLM's command line, `tensor-parallel-size`."""
    for key in [key for key in document.data if "-" in key]:
        _underscore(document, (key,))
    for name in _BLOCKS:
        block = document.data.get(name)
        for key in [key for key in block if "-" in key] if isinstance(block, dict) else ():
            _underscore(document, (name, key))


def _underscore(document: Document, keys: Keys) -> None:
    snake = keys[-1].strip("-").replace("-", "_")
    if not snake:
        return
    document.note(keys, f"`{keys[-1]}` is read as `{snake}`")
    _move(document, keys, (*keys[:-1], snake))


def _move_keys(document: Document, accepted: Collection[str]) -> None:
    for old, new in ABSORBED.items():
        if _has(document, old):
            document.note(old, f"`{'.'.join(old)}` is read as `{'.'.join(new)}`")
            _absorb(document, old, new)
    for name, new in MOVED.items():
        if _has(document, (name,)) and (name not in accepted or name in ALWAYS_MOVED):
            document.note((name,), f"`{name}` is read as `{'.'.join(new)}`")
            _move(document, (name,), new)
    speculative = document.data.get(SPECULATIVE)
    if isinstance(speculative, dict) and speculative.get("model") == "[ngram]":
        document.note((SPECULATIVE, "model"), "the model `[ngram]` is read as `method: ngram`")
        del speculative["model"]
        speculative.setdefault("method", "ngram")


def _absorb(document: Document, old: Keys, new: Keys) -> None:
    """Moves a value, or each value of a block, so that a block there already is kept."""
    value = document.data[old[0]][old[1]]
    if not isinstance(value, dict) or not _has(document, new):
        _move(document, old, new)
        return
    del document.data[old[0]][old[1]]
    into = document.data[new[0]]
    if not isinstance(into, dict):
        return
    for key, item in value.items():
        if into.setdefault(key, item) != item:
            message = f"`{key}` differs from the one in `{'.'.join(new)}`"
            document.refuse((*old, key), message, "keep one of them")
        document.lines.setdefault((*new, key), document.lines.get((*old, key), 1))


def _drop_gone(document: Document, accepted: Collection[str]) -> None:
    for keys, reason in GONE.items():
        if _has(document, keys) and not (len(keys) == 1 and keys[0] in accepted):
            document.note(keys, f"`{'.'.join(keys)}` is left out: {reason}")
            _take(document, keys)


def _limit_batch_size(document: Document) -> None:
    """`disable_by_batch_size` as a schedule with no drafts in larger batches."""
    keys = (SPECULATIVE, "disable_by_batch_size")
    if not _has(document, keys):
        return
    limit, speculative = _take(document, keys), document.data[SPECULATIVE]
    k = speculative.get("num_speculative_tokens")
    whole = all(type(number) is int and number > 0 for number in (limit, k))
    if limit is None or not whole or SCHEDULE in speculative or method_of(speculative) in FIXED_K:
        text = f"`{keys[1]}: {quote(limit)}` is left out: this vLLM cannot do it here"
        document.note(keys, text)
        return
    tiers = [[1, limit, k], [limit + 1, max(_WIDEST_BATCH, limit + 1), 0]]  # type: ignore[operator]  # whole above
    speculative[SCHEDULE] = tiers
    document.lines[(SPECULATIVE, SCHEDULE)] = document.lines.get(keys, 1)
    document.note(keys, f"`{keys[1]}: {limit}` is read as `{SCHEDULE}: {json.dumps(tiers)}`")


def _rewrite_values(document: Document, accepted: Collection[str]) -> None:
    dtype = document.data.get("dtype")
    if isinstance(dtype, str) and dtype in DTYPES:
        document.note(("dtype",), f"`{dtype}` is read as `{DTYPES[dtype]}`")
        document.data["dtype"] = DTYPES[dtype]
    ray = ("worker_use_ray",)
    if _has(document, ray) and ray[0] not in accepted:
        if document.data[ray[0]] is True:
            document.note(ray, "`worker_use_ray` is read as `distributed_executor_backend: ray`")
            document.data[ray[0]] = "ray"
            _move(document, ray, ("distributed_executor_backend",))
        elif _take(document, ray) is False:
            document.note(ray, "`worker_use_ray: false` is left out: it is the default")
