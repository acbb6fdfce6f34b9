"""What is known of vLLM's speculative methods by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SPECULATIVE = "speculative_config"
"""The argument of vLLM's that holds them."""
SCHEDULE = "num_speculative_tokens_per_batch_size"
"""The key below it that holds tiers of k by batch size."""

FIXED_K = frozenset({"suffix", "ngram_gpu", "extract_hidden_states", "medusa"})
"""Methods that assert that k is num_speculative_tokens: another k ends the engine."""

WITHOUT_MODEL = frozenset({"ngram", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class"})
"""Methods whose `model`, if any, is not a folder of weights."""

OWN_TOKENIZER = frozenset({"draft_model"})
"""Methods whose draft is a whole model, with a tokenizer that must be the target's."""

GRAPHS_PER_K = frozenset({"draft_model", "eagle", "eagle3", "dflash"})
"""Methods for which the V2 runner captures CUDA graphs for every k of a schedule, beside MTP."""

_PARALLEL_AT_ANY_K = frozenset({"dflash", "dspark"})
"""Methods that draft in parallel by proposers of their own, sized by the k of the step."""

_MARKS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
"""Parts of a draft's name that tell its method, in vLLM's order."""

_PROPOSER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""A class named by its module, which vLLM imports as the proposer."""


def drafts_all_or_none(method: str | None, *, parallel_drafting: object) -> bool:
    """Whether k has to be 0 or num_speculative_tokens: any other would end the engine.

    The V1 runner's proposer, which alone has parallel drafting for methods without a proposer
    of their own, fills k_max slots of a request and reads them as rows of k (vLLM 0.32 and 0.33).

    >>> drafts_all_or_none("eagle3", parallel_drafting=True)
    True
    >>> drafts_all_or_none("dflash", parallel_drafting=True)
    False
    """
    return bool(parallel_drafting) and method not in _PARALLEL_AT_ANY_K


def drafts_by_text(method: str | None) -> bool:
    """Whether the drafter finds something in some texts only: no draft is no standstill.

    >>> drafts_by_text("ngram_gpu"), drafts_by_text("eagle3"), drafts_by_text(None)
    (True, False, False)
    """
    return (method or "").startswith(("ngram", "suffix"))


def is_mtp(method: str | None) -> bool:
    """Whether the method drafts with the target's own multi-token heads.

    >>> is_mtp("deepseek_mtp"), is_mtp("eagle3")
    (True, False)
    """
    return method is not None and (method == "mtp" or method.endswith("_mtp"))


def method_of(speculative: Mapping[str, Any]) -> str | None:
    """The method that vLLM takes for this `speculative_config`, by its rules of names.

    None without method and model. vLLM also looks into a draft's config.json, which
    is not done here.

    >>> method_of({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}), method_of({"model": "a/1b"})
    ('eagle3', 'draft_model')
    """
    method, model = speculative.get("method"), speculative.get("model")
    if method is not None:
        return "ngram" if method == "[ngram]" else str(method)
    if not isinstance(model, str):
        return None
    if model in ("ngram", "[ngram]"):
        return "ngram"
    if _PROPOSER.fullmatch(model):
        return "custom_class"
    for mark, name in _MARKS:
        if mark in model.lower():
            return name
    return "draft_model"
