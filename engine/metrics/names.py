"""The series of vLLM's /metrics page that specdeck reads.

Names as data: vLLM 0.26 to 0.33 publish the same ones, and a later rename is one
more spelling in a tuple here. Each tuple lists spellings, the newest first.
"""

from __future__ import annotations

from typing import Final

COUNTERS: Final[dict[str, tuple[str, ...]]] = {
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total",),
    "generated": ("vllm:generation_tokens_total",),
    "prompt": ("vllm:prompt_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
}
"""Counters that only rise while the engine lives; summed over data-parallel engines."""

PER_POSITION: Final[dict[str, tuple[str, ...]]] = {
    "accepted_per_position": ("vllm:spec_decode_num_accepted_tokens_per_pos_total",),
    "drafted_per_position": ("specdeck:draft_tokens_per_position_total",),
}
"""Counters with a `position` label; the second one is specdeck's plugin's own."""

GAUGES: Final[dict[str, tuple[str, ...]]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
}
"""Gauges that add up over data-parallel engines."""

FRACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "kv_cache_usage": ("vllm:kv_cache_usage_perc",),
}
"""Gauges from 0 to 1; the fullest data-parallel engine counts, since it preempts first."""

HISTOGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
}

PROCESS_START: Final = "process_start_time_seconds"
"""Unix time; absent when several API server processes share one page."""
