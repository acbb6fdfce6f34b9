"""As much of vLLM's engine core as the contract names, with nothing behind it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class FullAttentionSpec:
    """The KV cache of layers that see everything before them."""

    block_size = 32


class Scheduler:
    """As much of vLLM's scheduler as the contract names."""

    def __init__(self) -> None:
        self.dynamic_sd_lookup: list[int] | None = None
        self.num_spec_tokens = 5
        self.running: list[Any] = []
        self.requests: dict[str, Any] = {}
        self.finished_req_ids: set[str] = set()
        self.kv_cache_manager = SimpleNamespace(
            block_pool=SimpleNamespace(null_block=SimpleNamespace(block_id=0))
        )
        self.kv_cache_config = SimpleNamespace(
            num_blocks=9,
            kv_cache_groups=[SimpleNamespace(kv_cache_spec=FullAttentionSpec())] * 2,
        )

    def schedule(self) -> Any: ...
    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any: ...
    def make_stats(self, spec_decoding_stats: Any = None) -> Any: ...
    def add_request(self, request: Any) -> None: ...
    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any: ...
    def update_draft_token_ids(self, draft_token_ids: Any) -> None: ...
    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        return True

    def get_request_counts(self) -> tuple[int, int]:
        return 0, 0

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: Any,
        request_id: str,
    ) -> Any: ...


USUAL = {"drafter": "D", "obeys": True, "skippable": True, "captured": None, "gaps": []}
"""What a worker says of a drafter that follows k."""


class Executor:
    """Workers that say of their drafters what they are told to."""

    def __init__(self, drafters: list[dict[str, Any]]) -> None:
        self.drafters = drafters

    def collective_rpc(self, method: str, timeout: Any = None, args: tuple[Any, ...] = ()) -> Any:
        return [{} for _ in self.drafters] if args == ("facts",) else self.drafters

    def execute_model(self, scheduler_output: Any) -> Any: ...
    def sample_tokens(self, grammar_output: Any) -> Any: ...
    def take_draft_token_ids(self) -> Any: ...


class EngineCore:
    """As much of an engine core as the contract names."""

    def __init__(self, drafters: list[dict[str, Any]] | None = None) -> None:
        self.scheduler: Any = Scheduler()
        self.model_executor: Any = Executor([USUAL] if drafters is None else drafters)
        self.vllm_config: Any = SimpleNamespace(
            speculative_config=SimpleNamespace(
                method="draft_model",
                num_speculative_tokens=5,
                draft_model_config=None,
                parallel_drafting=False,
                num_speculative_tokens_per_batch_size=None,
                uses_dynamic_speculative_decoding=lambda: False,
                max_num_new_slots_for_drafting=1,
                draft_load_config=None,
            ),
            model_config=SimpleNamespace(
                model="target", served_model_name="demo", is_moe=False, hf_config=None,
                revision=None, tokenizer="t", tokenizer_revision=None, generation_config="auto",
                hf_config_path=None, trust_remote_code=False, code_revision=None,
                logits_processors=None,
                max_model_len=1024,
            ),
            parallel_config=SimpleNamespace(
                data_parallel_size=1, data_parallel_index=0, is_moe_model=False,
                pipeline_parallel_size=1, worker_cls="auto", worker_extension_cls="",
                reconfigure_for_independent_dp_rank=lambda: None,
            ),
            scheduler_config=SimpleNamespace(
                max_num_seqs=8, async_scheduling=False, max_num_batched_tokens=512
            ),
            compilation_config=SimpleNamespace(cudagraph_mode=None, cudagraph_capture_sizes=[]),
            load_config=SimpleNamespace(load_format="dummy", download_dir=None),
            kv_transfer_config=None,
            device_config=SimpleNamespace(device_type="cpu"),
            max_concurrent_batches=1,
            use_v2_model_runner=False,
        )  # fmt: skip

    def step(self) -> Any: ...
    def collective_rpc(self, method: Any, timeout: Any = None, args: Any = ()) -> Any: ...
    def set_weight_version(self, weight_version: str) -> None: ...
    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        return True
