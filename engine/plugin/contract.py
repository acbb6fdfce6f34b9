"""What specdeck uses of vLLM: every name, parameter and call, in one table.

Two readers go by it. `python -m benchmarks.contract VERSION` reads the source of a version
without importing it; `engine.plugin.take_hold` looks at the running engine, where what is
missing becomes a capability with a reason. Nothing of vLLM's is used that has no row here:
a test walks the plugin's sources for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Loss = Literal[
    "live_k", "cold", "request_k", "savings", "graph_reach",
    "exact_models", "fingerprint", "responses", "counters", "cohorts", "calibration", "start",
]  # fmt: skip
"""What is lost without a row: a capability, or something that one of them says.

`savings` is whether a smaller k drafts less, `graph_reach` how many requests full CUDA graphs
serve, `calibration` dummy steps that time a step. The rest are the config's exact names, the facts
and the path's name, that name in responses, drafts by position, drafts by kind of request, and
starting an engine.
"""

Process = Literal["api", "core", "worker", "launch"]
"""Where the row is used: API server, engine core, worker, or the program that starts them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One class, function or constant of vLLM's, and what specdeck needs it to have."""

    module: str
    name: str
    """Qualified within the module: `Scheduler`, `Scheduler.schedule`."""
    process: Process
    users: tuple[str, ...]
    """Modules of ours that use it, below `specdeck.engine`."""
    loses: Loss
    without: str
    """What does not work without it."""
    members: tuple[str, ...] = ()
    """Methods, properties, fields and instance attributes of a class."""
    parameters: tuple[str, ...] = ()
    """Of a function, those that are passed or read by name."""
    passes: tuple[tuple[str, str], ...] = ()
    """Calls that the function makes: the name called, and a keyword that it is given or ''."""
    reads: tuple[str, ...] = ()
    """Attributes that the function's body goes by."""
    value: str | None = None
    """Of a constant."""
    meaning: bool = False
    """Whether the body counts as well: its hash stands in the expected results."""
    elsewhere: tuple[str, ...] = ()
    """Modules that hold it in other versions."""
    since: str | None = None
    """The first version that has it as required; None where all since 0.26 do."""
    until: str | None = None
    """The first version without it."""
    optional: bool = False
    """Whether specdeck does without it and says nothing."""

    @property
    def key(self) -> str:
        """The row's name in reports and expected results; several rows may be of one class.

        >>> ROWS[0].key
        'Scheduler: dynamic_sd_lookup, num_spec_tokens, running'
        """
        wanted = ", ".join((*self.members, *self.parameters))
        return f"{self.name}: {wanted}" if wanted else self.name

    @property
    def modules(self) -> tuple[str, ...]:
        """Where to look for it, in this order."""
        return (self.module, *self.elsewhere)


_SCHEDULER = "vllm.v1.core.sched.scheduler"
_ASYNC = "vllm.v1.core.sched.async_scheduler"
_OUTPUT = "vllm.v1.core.sched.output"
_CORE = "vllm.v1.engine.core"
_CONFIG = "vllm.config"
_PROPOSERS = "vllm.v1.spec_decode"
_SPECULATORS = "vllm.v1.worker.gpu.spec_decode"
_GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
_SERVING = "vllm.entrypoints.openai"
_PLUGINS = "vllm.plugins"

_NO_STEPS = "no step is seen, so that no change is proven and no policy learns"
_NO_PINS = "no request has a k of its own"
_NO_COHORTS = "drafts are not told apart by the kind of request"
_NO_DUMMIES = "no dummy steps can be made"
_COMPILES = "on a CPU the first request for log-probabilities waits for a compiler"
_ONE_BY_ONE = "drafts are told apart one by one, which costs time in each step"

SCHEDULER = (
    Row(_SCHEDULER, "Scheduler", "core", ("plugin.core_engine", "plugin.register"),
        "live_k", "k cannot be told to the scheduler",
        members=("dynamic_sd_lookup", "num_spec_tokens", "running")),
    Row(_SCHEDULER, "Scheduler.__init__", "core", ("plugin.register",),
        "live_k", "the tiers given for the graphs would be scheduled by"),
    Row(_SCHEDULER, "Scheduler.schedule", "core", ("plugin.core_engine", "plugin.recorder"),
        "live_k", "k is not read once per step, nor passed to the workers",
        reads=("dynamic_sd_lookup", "num_spec_tokens"),
        passes=(("SchedulerOutput", "num_spec_tokens_to_schedule"),)),
    Row(_SCHEDULER, "Scheduler.update_from_output", "core", ("plugin.recorder",),
        "live_k", _NO_STEPS, parameters=("scheduler_output",)),
    Row(_SCHEDULER, "Scheduler.make_spec_decoding_stats", "core",
        ("plugin.recorder", "plugin.request_counts"), "live_k", "drafts are not counted",
        parameters=("num_draft_tokens", "num_accepted_tokens", "num_invalid_spec_tokens",
                    "request_id")),
    Row(_SCHEDULER, "Scheduler.make_stats", "core", ("plugin.recorder",),
        "counters", "drafts are counted one by one, which costs time in each step",
        parameters=("spec_decoding_stats",), optional=True),
    Row(_SCHEDULER, "Scheduler.get_request_counts", "core", ("plugin.core_engine",),
        "live_k", "running and waiting requests are unknown"),
    Row(_SCHEDULER, "Scheduler.reset_prefix_cache", "core", ("plugin.core_engine",),
        "cold", "drafter and target cannot be made to agree again after cold",
        parameters=("reset_running_requests",)),
    Row(_SCHEDULER, "Scheduler", "core", ("plugin.request_pins",), "request_k", _NO_PINS,
        members=("schedule", "requests", "running", "finished_req_ids")),
    Row(_SCHEDULER, "Scheduler.add_request", "core",
        ("plugin.request_pins", "plugin.request_counts"), "request_k", _NO_PINS,
        parameters=("request",)),
    Row(_SCHEDULER, "Scheduler.update_draft_token_ids", "core", ("plugin.request_pins",),
        "request_k", _NO_PINS, reads=("spec_token_ids",), meaning=True),
    Row(_SCHEDULER, "Scheduler._free_request", "core", ("plugin.request_counts",), "cohorts",
        _NO_COHORTS, parameters=("request",)),
    Row(_ASYNC, "AsyncScheduler", "core", ("plugin.request_pins",), "request_k",
        f"{_NO_PINS} under asynchronous scheduling",
        members=("_spec_token_placeholders",)),
    Row(_ASYNC, "AsyncScheduler._update_after_schedule", "core", ("plugin.request_pins",),
        "request_k", f"{_NO_PINS} under asynchronous scheduling",
        reads=("spec_token_ids", "num_spec_tokens_to_schedule"), meaning=True),
    Row(_OUTPUT, "SchedulerOutput", "core", ("plugin.recorder",), "live_k", _NO_STEPS,
        members=("num_scheduled_tokens", "total_num_scheduled_tokens",
                 "scheduled_spec_decode_tokens", "num_spec_tokens_to_schedule")),
    Row(_OUTPUT, "SchedulerOutput", "core", ("plugin.request_pins",), "request_k", _NO_PINS,
        members=("scheduled_new_reqs", "finished_req_ids")),
    Row(_OUTPUT, "NewRequestData", "core", ("plugin.request_pins",), "request_k", _NO_PINS,
        members=("req_id",)),
    Row("vllm.v1.request", "Request", "core", ("plugin.request_pins",), "request_k", _NO_PINS,
        members=("request_id", "sampling_params", "spec_token_ids", "num_output_tokens",
                 "is_finished")),
    Row("vllm.v1.request", "Request", "core", ("plugin.request_counts",), "cohorts", _NO_COHORTS,
        members=("request_id", "sampling_params", "lora_request", "num_prompt_tokens",
                 "num_output_tokens", "num_preemptions", "prefill_stats", "arrival_time",
                 "status", "is_finished", "get_finished_reason")),
    Row(_SCHEDULER, "Scheduler", "core", ("plugin.request_counts",), "cohorts",
        "what runs right now is unknown", members=("requests", "running")),
    Row(_SCHEDULER, "Scheduler.update_from_output", "core", ("plugin.request_counts",),
        "cohorts", _ONE_BY_ONE, parameters=("scheduler_output", "model_runner_output"),
        optional=True),
    Row(_OUTPUT, "SchedulerOutput", "core", ("plugin.request_counts", "plugin.request_pins"),
        "cohorts", _ONE_BY_ONE,
        members=("scheduled_spec_decode_tokens", "num_invalid_spec_tokens"), optional=True),
    Row("vllm.v1.outputs", "ModelRunnerOutput", "core",
        ("plugin.request_counts", "plugin.request_pins"), "cohorts", _ONE_BY_ONE,
        members=("req_ids", "sampled_token_ids"), optional=True),
    Row("vllm.v1.engine", "EngineCoreOutputs", "core", ("plugin.request_counts",), "cohorts",
        _ONE_BY_ONE, members=("scheduler_stats",), optional=True),
    Row("vllm.v1.metrics.stats", "PrefillStats", "core", ("plugin.request_counts",), "cohorts",
        _NO_COHORTS, members=("num_prompt_tokens", "num_cached_tokens")),
    Row("vllm.v1.engine", "FinishReason", "core", ("plugin.request_counts",), "cohorts",
        _NO_COHORTS),
    Row("vllm.sampling_params", "SamplingParams", "core", ("plugin.request_counts",), "cohorts",
        _NO_COHORTS,
        members=("temperature", "structured_outputs", "extra_args", "allowed_token_ids",
                 "logit_bias", "bad_words", "frequency_penalty", "presence_penalty",
                 "repetition_penalty")),
    Row("vllm.sampling_params", "StructuredOutputsParams", "core", ("plugin.request_counts",),
        "cohorts", _NO_COHORTS,
        members=("json", "json_object", "regex", "choice", "grammar", "structural_tag")),
    Row("vllm.lora.request", "LoRARequest", "core", ("plugin.request_counts",), "cohorts",
        _NO_COHORTS, members=("lora_name",)),
    Row("vllm.v1.spec_decode.metrics", "SpecDecodingStats", "core",
        ("plugin.recorder", "plugin.stats", "plugin.request_counts"),
        "counters", "drafts are counted one by one, and have no figure by position",
        members=("num_drafts", "num_draft_tokens", "num_accepted_tokens_per_pos",
                 "num_draft_tokens_per_pos"), optional=True),
    Row("vllm.v1.engine", "EngineCoreOutputs", "core", ("plugin.recorder",), "live_k", _NO_STEPS,
        members=("outputs",)),
    Row("vllm.v1.engine", "EngineCoreOutput", "core", ("plugin.recorder",), "live_k", _NO_STEPS,
        members=("new_token_ids",)),
    Row(_OUTPUT, "SchedulerOutput", "core", ("plugin.dummy_steps",), "calibration", _NO_DUMMIES,
        members=("make_empty", "scheduled_new_reqs", "scheduled_cached_reqs",
                 "num_scheduled_tokens", "total_num_scheduled_tokens",
                 "scheduled_spec_decode_tokens", "num_spec_tokens_to_schedule",
                 "finished_req_ids")),
    Row(_OUTPUT, "NewRequestData", "core", ("plugin.dummy_steps",), "calibration", _NO_DUMMIES,
        members=("req_id", "prompt_token_ids", "mm_features", "sampling_params",
                 "pooling_params", "block_ids", "num_computed_tokens", "lora_request")),
    Row(_OUTPUT, "CachedRequestData", "core", ("plugin.dummy_steps",), "calibration",
        _NO_DUMMIES, members=("make_empty", "req_ids", "num_computed_tokens",
                              "num_output_tokens", "new_block_ids")),
    Row("vllm.sampling_params", "SamplingParams", "core", ("plugin.dummy_steps",),
        "calibration", _NO_DUMMIES, members=("temperature", "max_tokens", "ignore_eos")),
    Row(_SCHEDULER, "Scheduler", "core", ("plugin.core_engine", "plugin.dummy_steps"),
        "calibration", "which KV block belongs to nobody is unknown",
        members=("kv_cache_manager", "kv_cache_config", "num_spec_tokens",
                 "finished_req_ids")),
    Row("vllm.v1.core.kv_cache_manager", "KVCacheManager", "core", ("plugin.dummy_steps",),
        "calibration", "which KV block belongs to nobody is unknown", members=("block_pool",)),
    Row("vllm.v1.core.block_pool", "BlockPool", "core", ("plugin.dummy_steps",), "calibration",
        "which KV block belongs to nobody is unknown", members=("null_block",)),
    Row("vllm.v1.core.kv_cache_utils", "KVCacheBlock", "core", ("plugin.dummy_steps",),
        "calibration", "which KV block belongs to nobody is unknown", members=("block_id",)),
    Row("vllm.v1.kv_cache_interface", "KVCacheConfig", "core",
        ("plugin.core_engine", "plugin.dummy_steps", "plugin.null_block"), "calibration",
        "what kinds of KV cache there are is unknown",
        members=("kv_cache_groups", "num_blocks")),
    Row("vllm.v1.kv_cache_interface", "KVCacheGroupSpec", "core",
        ("plugin.core_engine", "plugin.dummy_steps"), "calibration",
        "what kinds of KV cache there are is unknown", members=("kv_cache_spec",)),
    Row("vllm.v1.kv_cache_interface", "KVCacheSpec", "core", ("plugin.dummy_steps",),
        "calibration", "what kinds of KV cache there are is unknown", members=("block_size",)),
    Row(f"{_PROPOSERS}.dynamic.utils", "build_dynamic_sd_schedule_lookup", "core",
        ("plugin.core_engine", "launch.command"), "live_k",
        "the list of k by batch size is another one",
        parameters=("vllm_max_batch_size", "vllm_num_speculative_tokens"), meaning=True),
)  # fmt: skip
"""The scheduler, what goes into it and what comes out."""

CORE = (
    Row(_CORE, "EngineCore", "core", ("plugin.register", "plugin.core_engine"),
        "live_k", "there is nothing to take hold of",
        members=("scheduler", "model_executor", "vllm_config")),
    Row(_CORE, "EngineCore.__init__", "core", ("plugin.register",), "live_k",
        "the plugin is not loaded in the engine core", passes=(("load_general_plugins", ""),)),
    Row(_CORE, "EngineCore.step", "core", ("plugin.dummy_steps",), "calibration",
        "how a step is made is unknown", reads=("schedule", "update_from_output"),
        passes=(("execute_model", "non_block"), ("sample_tokens", "")), meaning=True),
    Row(_CORE, "EngineCoreProc", "core", ("plugin.dummy_steps",), "calibration",
        "a request would wait until all dummy steps are made", members=("input_queue",)),
    Row("vllm.v1.executor.abstract", "Executor", "core", ("plugin.dummy_steps",), "calibration",
        _NO_DUMMIES, members=("execute_model", "sample_tokens", "take_draft_token_ids")),
    Row(_CORE, "EngineCore.collective_rpc", "core", ("plugin.weights",), "fingerprint",
        "new weights leave the path's name as it is"),
    Row(_CORE, "EngineCore.set_weight_version", "core", ("plugin.weights",), "fingerprint",
        "a weight version leaves the path's name as it is", parameters=("weight_version",),
        optional=True),
    Row(_CORE, "EngineCore.reset_prefix_cache", "core", ("plugin.core_engine",), "cold",
        "drafter and target cannot be made to agree again after cold",
        parameters=("reset_running_requests",)),
    Row(_CORE, "EngineCoreProc._handle_client_request", "core", ("plugin.control",), "live_k",
        "calls do not come between two steps", passes=(("_invoke_utility_method", ""),),
        reads=("UTILITY",)),
    Row(_CORE, "EngineCoreProc._invoke_utility_method", "core", ("plugin.control",), "live_k",
        "answers do not come back", meaning=True),
    Row(_CORE, "EngineCoreProc.run_engine_core", "core", ("plugin.ranks",), "live_k",
        "data-parallel ranks of a dense model may step together",
        reads=("is_moe", "reconfigure_for_independent_dp_rank"), optional=True),
    Row(f"{_CONFIG}.parallel", "ParallelConfig.reconfigure_for_independent_dp_rank", "core",
        ("plugin.ranks",), "live_k", "data-parallel ranks of a dense model may step together",
        reads=("data_parallel_size",), meaning=True, optional=True),
    # Ray's executor is the multiprocessing one with actors for workers, where there is one.
    Row("vllm.v1.executor.multiproc_executor", "MultiprocExecutor.collective_rpc", "core",
        ("plugin.core_engine", "plugin.fingerprint"), "live_k",
        "the workers of several ranks cannot be asked", parameters=("method", "args")),
    Row("vllm.v1.executor.multiproc_executor", "WorkerProc._execute_worker_rpc", "worker",
        ("plugin.register",), "live_k", "a worker does not find the plugin's method",
        reads=("worker",), meaning=True),
    Row("vllm.v1.executor.ray_executor_v2", "RayExecutorV2._init_executor", "core",
        ("plugin.core_engine",), "live_k", "the workers on Ray cannot be asked",
        passes=(("remote", ""),), reads=("rpc_broadcast_mq",)),
    Row("vllm.v1.executor.ray_executor_v2", "RayWorkerProc.run", "worker", ("plugin.register",),
        "live_k", "a worker on Ray is not asked as others are",
        passes=(("worker_busy_loop", ""),), meaning=True),
    Row("vllm.v1.executor.ray_executor", "RayDistributedExecutor.collective_rpc", "core",
        ("plugin.core_engine",), "live_k", "the workers on Ray cannot be asked",
        parameters=("method", "args"), optional=True, until="0.33"),
    Row("vllm.v1.executor.abstract", "Executor.collective_rpc", "core",
        ("plugin.core_engine", "plugin.fingerprint"), "live_k",
        "the workers cannot be asked", parameters=("args",)),
)  # fmt: skip
"""The engine core's process."""

CONFIG = (
    Row(f"{_CONFIG}.vllm", "VllmConfig", "core",
        ("plugin.core_engine", "plugin.fingerprint", "plugin.endpoint"), "live_k",
        "the engine's configuration is unknown",
        members=("speculative_config", "model_config", "parallel_config", "scheduler_config",
                 "compilation_config", "load_config"),
        elsewhere=(_CONFIG,)),
    Row(f"{_CONFIG}.vllm", "VllmConfig", "core", ("plugin.core_engine",), "cold",
        "whether KV blocks are kept elsewhere is unknown", members=("kv_transfer_config",),
        elsewhere=(_CONFIG,)),
    Row(f"{_CONFIG}.vllm", "VllmConfig.max_concurrent_batches", "core", ("plugin.core_engine",),
        "counters", "what a step verified is uncertain with stages of a pipeline",
        reads=("pipeline_parallel_size",), optional=True),
    Row(f"{_CONFIG}.vllm", "VllmConfig.use_v2_model_runner", "core",
        ("plugin.core_engine", "launch.model_runner"), "live_k",
        "the model runner is unknown", reads=("VLLM_USE_V2_MODEL_RUNNER",), meaning=True),
    Row(f"{_CONFIG}.vllm", "VllmConfig._get_v2_model_runner_unsupported_features", "launch",
        ("launch.model_runner",), "start", "tiers may be given to the V1 runner", meaning=True),
    Row(f"{_CONFIG}.vllm", "VllmConfig._set_cudagraph_sizes", "launch",
        ("launch.command",), "graph_reach",
        "how far full CUDA graphs reach is unknown",
        reads=("cudagraph_capture_sizes", "max_cudagraph_capture_size"), meaning=True),
    Row(f"{_CONFIG}.speculative", "SpeculativeConfig", "core",
        ("plugin.core_engine", "plugin.drafters", "plugin.fingerprint"), "live_k",
        "method and k_max are unknown",
        members=("method", "num_speculative_tokens", "draft_model_config", "parallel_drafting",
                 "num_speculative_tokens_per_batch_size", "uses_dynamic_speculative_decoding"),
        elsewhere=(_CONFIG,)),
    Row(f"{_CONFIG}.model", "ModelConfig", "core",
        ("plugin.core_engine", "plugin.fingerprint"), "live_k",
        "what is served is unknown",
        members=("model", "served_model_name", "is_moe", "hf_config")),
    Row(f"{_CONFIG}.model", "ModelConfig", "core", ("plugin.fingerprint",), "fingerprint",
        "model and tokenizer cannot be read",
        members=("revision", "tokenizer", "tokenizer_revision", "generation_config",
                 "hf_config_path", "trust_remote_code", "code_revision")),
    Row(f"{_CONFIG}.model", "ModelConfig", "core", ("plugin.fingerprint",), "fingerprint",
        "the code of logits processors is not read", members=("logits_processors",)),
    Row(f"{_CONFIG}.parallel", "ParallelConfig", "core", ("plugin.fingerprint",), "fingerprint",
        "the code of workers is not read", members=("worker_cls", "worker_extension_cls")),
    Row(f"{_CONFIG}.model", "ModelConfig", "core", ("plugin.dummy_steps",), "calibration",
        "how long a request may be is unknown", members=("max_model_len",)),
    Row(f"{_CONFIG}.scheduler", "SchedulerConfig", "core", ("plugin.core_engine",),
        "calibration", "how many tokens a step may have is unknown",
        members=("max_num_batched_tokens",)),
    Row(f"{_CONFIG}.speculative", "SpeculativeConfig", "core", ("plugin.core_engine",),
        "calibration", "the drafter is taken to need the most rows that any does",
        members=("max_num_new_slots_for_drafting",), optional=True),
    Row(f"{_CONFIG}.parallel", "ParallelConfig", "core", ("plugin.core_engine",),
        "calibration", "whether the model is cut into stages is unknown",
        members=("pipeline_parallel_size",)),
    Row(f"{_CONFIG}.parallel", "ParallelConfig", "core",
        ("plugin.core_engine", "plugin.endpoint", "plugin.fingerprint"), "live_k",
        "data-parallel ranks are unknown",
        members=("data_parallel_size", "data_parallel_index", "is_moe_model")),
    Row(f"{_CONFIG}.scheduler", "SchedulerConfig", "core", ("plugin.core_engine",), "live_k",
        "the number of seats is unknown", members=("max_num_seqs", "async_scheduling")),
    Row(f"{_CONFIG}.compilation", "CompilationConfig", "core",
        ("plugin.core_engine",), "graph_reach",
        "what a pin costs, and how far full graphs reach, is unknown",
        members=("cudagraph_mode", "cudagraph_capture_sizes")),
    Row(f"{_CONFIG}.compilation", "CUDAGraphMode", "core", ("plugin.core_engine",), "live_k",
        "what a pin costs is unknown", members=("has_full_cudagraphs", "separate_routine")),
    Row(f"{_CONFIG}.device", "DeviceConfig", "core", ("plugin.core_engine",), "live_k",
        "whether it was tried on such a device is unsaid", members=("device_type",),
        optional=True),
    Row(f"{_CONFIG}.vllm", "VllmConfig", "core", ("plugin.core_engine",), "live_k",
        "whether it was tried on such a device is unsaid", members=("device_config",),
        elsewhere=(_CONFIG,), optional=True),
    Row(f"{_CONFIG}.load", "LoadConfig", "core", ("plugin.fingerprint",), "fingerprint",
        "dummy weights are taken for those of the files",
        members=("load_format", "download_dir")),
    Row(f"{_CONFIG}.speculative", "SpeculativeConfig", "core", ("plugin.fingerprint",),
        "fingerprint", "a draft's files are looked for where the target's are",
        members=("draft_load_config",), elsewhere=(_CONFIG,)),
)  # fmt: skip
"""vLLM's resolved configuration."""

WORKERS = (
    Row("vllm.v1.worker.worker_base", "WorkerBase", "worker",
        ("plugin.register", "plugin.drafters", "plugin.fingerprint"), "live_k",
        "the workers cannot be asked", members=("model_runner",)),
    Row("vllm.v1.worker.worker_base", "WorkerBase", "worker", ("plugin.logprob_ranks",), "start",
        _COMPILES, members=("device",), optional=True),
    Row("vllm.v1.sample.ops.logprobs", "batched_count_greater_than", "worker",
        ("plugin.logprob_ranks",), "start", _COMPILES, parameters=("x", "values"), meaning=True,
        optional=True),
    Row("vllm.v1.sample.sampler", "Sampler.gather_logprobs", "worker", ("plugin.logprob_ranks",),
        "start", _COMPILES, passes=(("batched_count_greater_than", ""),), optional=True),
    Row("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "worker",
        ("plugin.drafters",), "cold", "the V1 drafter is not found", members=("drafter",)),
    Row("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "worker", ("plugin.fingerprint",),
        "fingerprint", "the attention backends are unknown", members=("attn_groups",),
        optional=True),
    Row("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "worker", ("plugin.null_block",),
        "calibration", "the null block cannot be put back",
        members=("kv_caches", "kv_cache_config", "drafter")),
    Row("vllm.v1.worker.gpu_model_runner", "GPUModelRunner._update_states", "worker",
        ("plugin.dummy_steps",), "calibration", "a step cannot be repeated",
        reads=("num_output_tokens", "num_computed_tokens", "finished_req_ids"), meaning=True),
    Row("vllm.v1.worker.gpu_model_runner", "GPUModelRunner.propose_draft_token_ids", "worker",
        ("plugin.drafters",), "live_k", "the V1 drafter is not told k",
        reads=("num_spec_tokens_to_schedule",),
        passes=(("propose", "num_speculative_tokens"), ("propose", "next_token_ids"))),
    Row("vllm.v1.worker.gpu.model_runner", "GPUModelRunner", "worker",
        ("plugin.drafters",), "cold", "the V2 drafter is not found", members=("speculator",)),
    Row("vllm.v1.worker.gpu.model_runner", "GPUModelRunner", "worker",
        ("plugin.drafters", "plugin.fingerprint"), "fingerprint",
        "the attention backends are unknown", members=("speculator", "attn_groups"),
        optional=True),
    Row("vllm.v1.worker.gpu.model_runner", "GPUModelRunner.sample_tokens", "worker",
        ("plugin.drafters",), "savings", "the V2 drafter is not told k",
        reads=("num_speculative_steps", "draft_tokens"),
        passes=(("propose", "num_speculative_tokens"),), since="0.32"),
    Row("vllm.v1.worker.gpu.input_batch", "InputBatch", "worker", ("plugin.drafters",), "cold",
        "the V2 drafter cannot be left out", members=("num_reqs",)),
    Row(f"{_PROPOSERS}.llm_base_proposer", "SpecDecodeBaseProposer", "worker",
        ("plugin.drafters",), "cold", "the V1 drafter cannot be left out",
        members=("num_speculative_tokens", "_last_draft_probs")),
    Row(f"{_PROPOSERS}.llm_base_proposer", "SpecDecodeBaseProposer.propose", "worker",
        ("plugin.drafters", "plugin.capabilities"), "savings",
        "how many passes the V1 drafter makes is unknown",
        parameters=("num_speculative_tokens",),
        reads=("num_speculative_tokens", "parallel_drafting"), meaning=True),
    Row(f"{_PROPOSERS}.llm_base_proposer", "SpecDecodeBaseProposer.propose", "worker",
        ("plugin.drafters",), "cold", "the V1 drafter cannot be left out",
        parameters=("next_token_ids",)),
    Row(f"{_PROPOSERS}.step3p5", "Step3p5MTPProposer.propose", "worker",
        ("plugin.drafters", "plugin.capabilities"), "live_k",
        "whether it knows k = 0 is unknown", meaning=True, optional=True),
    Row(f"{_PROPOSERS}.ngram_proposer", "NgramProposer.propose", "worker",
        ("plugin.drafters", "plugin.capabilities"), "savings",
        "whether n-gram drafts follow k is unknown", meaning=True),
    Row(f"{_PROPOSERS}.ngram_proposer_gpu", "NgramProposerGPU.propose", "worker",
        ("plugin.capabilities",), "live_k", "whether it asserts k is unknown",
        meaning=True, optional=True),
    Row(f"{_PROPOSERS}.suffix_decoding", "SuffixDecodingProposer.propose", "worker",
        ("plugin.capabilities",), "live_k", "whether it asserts k is unknown",
        meaning=True, optional=True),
    Row(f"{_PROPOSERS}.medusa", "MedusaProposer.propose", "worker",
        ("plugin.capabilities",), "live_k", "there is no such method", meaning=True,
        optional=True, until="0.33"),
    Row(f"{_PROPOSERS}.extract_hidden_states", "ExtractHiddenStatesProposer.propose", "worker",
        ("plugin.capabilities",), "live_k", "whether it asserts k is unknown",
        meaning=True, optional=True),
    Row(f"{_SPECULATORS}.speculator", "DraftModelSpeculator", "worker", ("plugin.drafters",),
        "savings", "what the V2 drafter's graphs hold is unknown",
        members=("num_speculative_steps", "draft_tokens", "speculative_config",
                 "supports_decode_metadata_update"), since="0.32"),
    Row(f"{_SPECULATORS}.target_dependent_ar.speculator", "TargetDependentARSpeculator", "worker",
        ("plugin.drafters",), "savings", "what the V2 drafter's graphs hold is unknown",
        members=("decode_cudagraph_manager",), since="0.32"),
    Row(f"{_SPECULATORS}.target_dependent_ar.speculator", "TargetDependentARSpeculator.propose",
        "worker", ("plugin.drafters",), "savings", "the V2 drafter cannot be told k",
        parameters=("num_speculative_tokens", "dummy_run"), meaning=True,
        since="0.32"),
    Row(f"{_SPECULATORS}.standalone_ar.speculator", "StandaloneARSpeculator.propose", "worker",
        ("plugin.drafters",), "savings", "the V2 drafter for draft_model drafts k_max at every k",
        parameters=("num_speculative_tokens", "dummy_run"),
        reads=("num_speculative_steps",), meaning=True, since="0.32"),
    Row(f"{_SPECULATORS}.target_dependent_ar.cudagraph_utils",
        "SpeculatorCudaGraphManager.specialize_spec_tokens", "worker",
        ("plugin.drafters", "plugin.capabilities"), "savings",
        "what the V2 drafter's graphs hold is unknown",
        parameters=("num_speculative_tokens",), meaning=True, since="0.32"),
    Row(f"{_SPECULATORS}.target_dependent_ar.cudagraph_utils", "SpeculatorBatchDescriptor",
        "worker", ("plugin.drafters",), "savings", "what the V2 drafter's graphs hold is unknown",
        members=("num_speculative_tokens",), since="0.32"),
    Row(_GRAPHS, "CudaGraphManager", "worker", ("plugin.drafters",), "savings",
        "what the V2 drafter's graphs hold is unknown", members=("graphs",)),
    Row(_GRAPHS, "CudaGraphManager._init_candidates", "worker",
        ("plugin.capabilities",), "graph_reach",
        "how far full CUDA graphs reach is unknown", meaning=True),
    Row(_GRAPHS, "CudaGraphManager.dispatch", "worker",
        ("plugin.capabilities",), "graph_reach",
        "how far full CUDA graphs reach is unknown",
        parameters=("num_tokens", "uniform_token_count"), meaning=True),
)  # fmt: skip
"""The workers: runners, drafters and their CUDA graphs."""

API_SERVER = (
    Row("vllm.v1.engine.core_client", "AsyncMPClient.call_utility_all_async", "api",
        ("plugin.endpoint",), "live_k", "the engine cores cannot be asked", since="0.32"),
    # Those of data-parallel ranks alone: `find_obstacle` says what is missing.
    Row("vllm.v1.engine.core_client", "AsyncMPClient._call_utility_async", "api",
        ("plugin.ranks",), "live_k", "data-parallel ranks cannot be asked one by one",
        parameters=("method", "args", "engine"), optional=True),
    Row("vllm.v1.engine.core_client", "MPClient", "api", ("plugin.ranks",), "live_k",
        "data-parallel ranks are unknown", members=("core_engines",), optional=True),
    Row("vllm.v1.engine.core_client", "AsyncMPClient", "api", ("plugin.endpoint",), "live_k",
        "several API servers do not take turns", members=("client_count",), optional=True),
    Row("vllm.v1.engine.async_llm", "AsyncLLM", "api", ("plugin.endpoint", "plugin.request_pins"),
        "live_k", "the engine cores cannot be asked", members=("engine_core", "vllm_config")),
    Row("vllm.v1.engine.async_llm", "AsyncLLM", "api", ("plugin.request_pins",), "request_k",
        "a k that cannot be is not refused", members=("input_processor",)),
    Row("vllm.v1.engine.input_processor", "InputProcessor.process_inputs", "api",
        ("plugin.request_pins",), "request_k", "a k that cannot be is not refused",
        parameters=("request_id", "prompt", "params")),
    Row("vllm.sampling_params", "SamplingParams", "api", ("plugin.request_pins",), "request_k",
        _NO_PINS, members=("extra_args",)),
    Row(f"{_SERVING}.completion.protocol", "CompletionRequest", "api",
        ("plugin.request_pins", "plugin.responses"), "request_k", _NO_PINS,
        members=("model", "vllm_xargs")),
    Row(f"{_SERVING}.chat_completion.protocol", "ChatCompletionRequest", "api",
        ("plugin.request_pins", "plugin.responses"), "request_k", _NO_PINS,
        members=("model", "vllm_xargs")),
    Row("vllm.exceptions", "VLLMValidationError", "api", ("plugin.request_pins",), "request_k",
        "a ValueError refuses a k that cannot be", optional=True),
    Row("vllm.entrypoints.serve.engine.serving", "BaseServing._check_model", "api",
        ("plugin.request_pins",), "exact_models", "requests under exact names are not pinned",
        parameters=("request",), elsewhere=("vllm.entrypoints.openai.engine.serving",)),
    Row("vllm.entrypoints.serve.engine.serving", "BaseServing", "api", ("plugin.request_pins",),
        "exact_models", "requests under exact names are neither known nor refused",
        members=("create_error_response", "models"),
        elsewhere=("vllm.entrypoints.openai.engine.serving",)),
    Row(f"{_SERVING}.models.serving", "OpenAIServingModels", "api", ("plugin.request_pins",),
        "exact_models", "a request without a name is not known by it",
        members=("base_model_paths",)),
    Row(f"{_SERVING}.completion.serving", "OpenAIServingCompletion.create_completion", "api",
        ("plugin.request_pins", "plugin.responses"), "responses",
        "responses carry vLLM's own fingerprint only", parameters=("request",)),
    Row(f"{_SERVING}.chat_completion.serving", "OpenAIServingChat.create_chat_completion", "api",
        ("plugin.request_pins", "plugin.responses"), "responses",
        "responses carry vLLM's own fingerprint only", parameters=("request",)),
    Row(f"{_SERVING}.completion.serving", "OpenAIServingCompletion", "api",
        ("plugin.responses",), "responses", "responses carry vLLM's own fingerprint only",
        members=("system_fingerprint",)),
    Row(f"{_SERVING}.chat_completion.serving", "OpenAIServingChat", "api",
        ("plugin.responses",), "responses", "responses carry vLLM's own fingerprint only",
        members=("system_fingerprint",)),
    Row(f"{_SERVING}.responses.serving", "OpenAIServingResponses.create_responses", "api",
        ("plugin.request_pins",), "exact_models",
        "the fingerprint of such a request lacks its k", parameters=("request",), optional=True),
    Row("vllm.entrypoints.serve.utils.fingerprint", "get_system_fingerprint", "api",
        ("plugin.fingerprint",), "fingerprint", "vLLM's own fingerprint is not shown",
        parameters=("vllm_config",), elsewhere=("vllm.entrypoints.openai.fingerprint",)),
    Row("vllm._version", "__commit_id__", "core", ("plugin.fingerprint",), "fingerprint",
        "vLLM's commit is no fact", optional=True),
    Row("vllm.version", "__version__", "core", ("plugin.core_engine", "plugin.endpoint"),
        "live_k", "vLLM's version is unknown", elsewhere=("vllm", "vllm._version")),
    Row("vllm.v1.metrics.loggers", "StatLoggerBase.record", "api", ("plugin.stats",), "counters",
        "drafts by position are not published",
        parameters=("scheduler_stats", "iteration_stats", "mm_cache_stats", "engine_idx")),
    Row("vllm.v1.metrics.loggers", "StatLoggerBase.__init__", "api", ("plugin.stats",),
        "counters", "drafts by position are not published",
        parameters=("vllm_config", "engine_index")),
    Row("vllm.v1.metrics.loggers", "StatLoggerBase", "api", ("plugin.stats",), "counters",
        "drafts by position are not published", members=("log_engine_initialized",)),
    Row("vllm.v1.metrics.stats", "SchedulerStats", "api", ("plugin.stats",), "counters",
        "drafts by position are not published", members=("spec_decoding_stats",)),
)  # fmt: skip
"""The API servers."""

PLUGINS = (
    Row(_PLUGINS, "DEFAULT_PLUGINS_GROUP", "launch", ("plugin.register",), "live_k",
        "the plugin is not loaded", value="vllm.general_plugins"),
    Row(_PLUGINS, "ENDPOINT_PLUGINS_GROUP", "launch", ("plugin.endpoint",), "live_k",
        "there are no routes under /v1/specdeck", value="vllm.endpoint_plugins"),
    Row(_PLUGINS, "STAT_LOGGER_PLUGINS_GROUP", "launch", ("plugin.stats",), "counters",
        "drafts by position are not published", value="vllm.stat_logger_plugins"),
    Row(_PLUGINS, "load_plugins_by_group", "launch", ("launch.command",), "live_k",
        "VLLM_PLUGINS no longer names what is loaded", reads=("VLLM_PLUGINS",), meaning=True),
    Row(f"{_PLUGINS}.endpoint_plugins.interface", "EndpointPlugin", "api", ("plugin.endpoint",),
        "live_k", "there are no routes under /v1/specdeck",
        members=("name", "required_tasks", "attach_router", "init_state")),
    Row(f"{_PLUGINS}.endpoint_plugins.interface", "EndpointPlugin.init_state", "api",
        ("plugin.endpoint",), "live_k", "the plugin does not take hold at the start",
        parameters=("engine_client", "state", "args")),
)  # fmt: skip
"""How vLLM loads plugins."""

LAUNCH = (
    Row("vllm.entrypoints.common.cli_args", "make_arg_parser", "launch",
        ("config.dump_vllm_args", "launch.api_servers"), "start",
        "a config is checked against the arguments of another version",
        parameters=("parser",),
        elsewhere=("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")),
    Row("vllm.utils.argparse_utils", "FlexibleArgumentParser", "launch",
        ("config.dump_vllm_args", "launch.api_servers"), "start",
        "a config is checked against the arguments of another version",
        elsewhere=("vllm.utils",)),
    Row("vllm.entrypoints.cli.serve", "ServeSubcommand", "launch", ("launch.api_servers",),
        "start", "several API servers cannot be started", members=("cmd", "validate")),
)  # fmt: skip
"""Starting an engine."""

ROWS: tuple[Row, ...] = (
    *SCHEDULER, *CORE, *CONFIG, *WORKERS, *API_SERVER, *PLUGINS, *LAUNCH,
)  # fmt: skip


BY_KEY: Mapping[str, Row] = {row.key: row for row in ROWS}


@dataclass(frozen=True, slots=True)
class Gap:
    """A row that an engine does not have as specdeck needs it."""

    row: Row
    missing: tuple[str, ...]
    """What of it: `Scheduler.dynamic_sd_lookup`, `Scheduler.make_stats(spec_decoding_stats)`."""


def describe_gaps(gaps: Iterable[Gap], vllm: str) -> str:
    """Why something cannot be done where rows are missing.

    >>> describe_gaps([Gap(ROWS[0], ("Scheduler.dynamic_sd_lookup",))], "0.40.0")
    'vLLM 0.40.0 has no Scheduler.dynamic_sd_lookup: k cannot be told to the scheduler'
    """
    found = list(gaps)
    names = ", ".join(dict.fromkeys(name for gap in found for name in gap.missing))
    return f"vLLM {vllm} has no {names}: {found[0].row.without}"


def by_loss(gaps: Iterable[Gap]) -> Mapping[Loss, tuple[Gap, ...]]:
    """The gaps that matter, by what is lost."""
    found: dict[Loss, tuple[Gap, ...]] = {}
    for gap in gaps:
        if not gap.row.optional:
            found[gap.row.loses] = (*found.get(gap.row.loses, ()), gap)
    return found
