"""Combinations that start and then disappoint, or do not start, with vLLM's issue number.

One entry each, so that a new report is a few lines here and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specdeck.engine.config.config import Config
from specdeck.engine.launch.command import needs_schedule
from specdeck.engine.launch.machine import Build
from specdeck.engine.launch.model_runner import choose_runner
from specdeck.engine.protocol.methods import (
    FIXED_K,
    SCHEDULE,
    SPECULATIVE,
    drafts_all_or_none,
    is_mtp,
)
from specdeck.engine.protocol.vllm_versions import is_too_old

_CPU_BLOCK = 32
_CPU_BINDING = "VLLM_CPU_OMP_THREADS_BIND"
_TRUE = ("1", "true")


@dataclass(frozen=True, slots=True)
class Situation:
    """A config, and what it would run on."""

    config: Config
    build: Build
    environment: Mapping[str, str]
    gpus: int = 0
    ray: bool = True

    def arg(self, name: str, default: Any = None) -> Any:
        """An engine argument."""
        return self.config.engine_args.get(name, default)

    def spec(self, name: str) -> Any:
        """A key of speculative_config; None without speculation too."""
        return (self.config.speculative or {}).get(name)

    def is_on(self, variable: str) -> bool:
        """Whether an environment variable says yes."""
        return self.environment.get(variable, "").strip().lower() in _TRUE

    @property
    def method(self) -> str | None:
        """The speculative method; None without speculation."""
        return self.config.method

    @property
    def has_schedule(self) -> bool:
        """Whether the config has a schedule of k."""
        return SCHEDULE in (self.config.speculative or {})

    @property
    def drafts_all_or_none(self) -> bool:
        """Whether any k but 0 and num_speculative_tokens would end the engine."""
        parallel = self.spec("parallel_drafting")
        fixed = drafts_all_or_none(self.method, parallel_drafting=parallel)
        return fixed and self.config.k_max != 1

    @property
    def drafts_on_a_cpu(self) -> bool:
        """Whether vLLM's CPU build would speculate."""
        return self.build.kind == "cpu" and self.method is not None

    @property
    def samples(self) -> bool:
        """Whether requests that name no temperature are sampled because the config says so."""
        return (self.config.sampling.temperature or 0.0) > 0.0

    @property
    def captures_graphs(self) -> bool:
        """Whether CUDA graphs would be captured."""
        return self.build.kind != "cpu" and self.gpus > 0 and not self.arg("enforce_eager", False)

    @property
    def uses_v1_runner(self) -> bool:
        """Whether the V1 model runner would be used, as far as the config tells."""
        cpu = self.build.kind == "cpu"
        return choose_runner(self.config, self.environment, cpu=cpu) == "V1"


@dataclass(frozen=True, slots=True)
class KnownBad:
    """One combination."""

    name: str
    level: Literal["notice", "warning", "error"]
    applies: Callable[[Situation], bool]
    message: str
    remedy: str
    key: tuple[str, ...] = ()
    """The key of the config to point at."""
    issue: int | None = None
    """vLLM's issue number; None where its source says it."""

    def text(self) -> str:
        """The message with the issue that reports it."""
        return f"{self.message} (vLLM issue {self.issue})" if self.issue else self.message


def _ngram_lookup(s: Situation) -> int:
    """The shortest match of n-gram drafts; vLLM takes 5 when nothing is said."""
    return int(s.spec("prompt_lookup_min") or s.spec("prompt_lookup_max") or 5)


def _tools(s: Situation) -> bool:
    return bool(s.arg("enable_auto_tool_choice") or s.arg("tool_call_parser"))


def _size(s: Situation, kind: str) -> int:
    return int(s.arg(f"{kind}_parallel_size") or 1)


def _several_ranks(s: Situation) -> bool:
    return _size(s, "data") > 1


def _ranks_on_a_cpu(s: Situation) -> bool:
    ranks = _size(s, "tensor") * _size(s, "pipeline") * _size(s, "data")
    bound = s.environment.get(_CPU_BINDING, "auto") != "auto"
    return s.build.kind == "cpu" and ranks > 1 and not bound


def _schedules_between(s: Situation) -> bool:
    """Whether the schedule holds a k that is neither 0 nor num_speculative_tokens."""
    tiers = s.spec(SCHEDULE)
    listed = tiers if isinstance(tiers, list) else []
    return any(
        isinstance(tier, list) and tier and tier[-1] not in (0, s.config.k_max) for tier in listed
    )


def _draft_ranks(s: Situation) -> bool:
    ranks = s.spec("draft_tensor_parallel_size")
    return ranks not in (None, 1, _size(s, "tensor"))


def _draft_on_fewer_ranks(s: Situation) -> bool:
    fewer = s.spec("draft_tensor_parallel_size") == 1 < _size(s, "tensor")
    return fewer and s.method == "draft_model" and s.uses_v1_runner


def _too_few_gpus(s: Situation) -> bool:
    ranks = _size(s, "tensor") * _size(s, "pipeline")
    here = s.arg("distributed_executor_backend") != "ray" and s.arg("nnodes", 1) == 1
    return s.build.kind == "gpu" and here and 0 < s.gpus < ranks


KNOWN_BAD: tuple[KnownBad, ...] = (
    KnownBad(
        "ngram with tools",
        "warning",
        lambda s: s.method == "ngram" and _tools(s) and _ngram_lookup(s) < 8,
        "short n-gram matches corrupt tool calls",
        "set prompt_lookup_min: 8",
        (SPECULATIVE, "prompt_lookup_min"),
        40875,
    ),
    KnownBad(
        "schedule with data parallelism",
        "warning",
        lambda s: _several_ranks(s) and s.has_schedule,
        "vLLM ignores the schedule of k under data parallelism, where ranks could deadlock",
        f"leave {SCHEDULE} out or set data_parallel_size: 1",
        (SPECULATIVE, SCHEDULE),
    ),
    KnownBad(
        "experts with data parallelism",
        "notice",
        lambda s: (
            _several_ranks(s)
            and s.config.speculative is not None
            and bool(s.arg("enable_expert_parallel"))
        ),
        "k cannot be changed live: ranks of a mixture of experts step together, and those with "
        "different k would deadlock",
        "run one engine per rank, without data_parallel_size",
        ("data_parallel_size",),
    ),
    KnownBad(
        "policy with data parallelism",
        "warning",
        lambda s: _several_ranks(s) and bool(s.config.orchestration.adaptive_draft),
        "no policy is followed: each rank would choose a k of its own",
        "leave adaptive_draft out, or run one engine per rank, without data_parallel_size",
        ("orchestration", "adaptive_draft"),
    ),
    KnownBad(
        "pipeline parallelism on the V1 runner",
        "error",
        lambda s: (
            _size(s, "pipeline") > 1 and s.config.speculative is not None and s.uses_v1_runner
        ),
        # Read in vLLM 0.32: _build_attention_metadata asks every stage for `self.drafter`.
        "only the last stage has a drafter on the V1 runner, and the others end at the first "
        "request",
        "set tensor_parallel_size in place of pipeline_parallel_size, or use the V2 runner",
        ("pipeline_parallel_size",),
    ),
    KnownBad(
        "ranks on a CPU",
        "warning",
        _ranks_on_a_cpu,
        "vLLM's CPU build gives each rank a NUMA node, and does not start where there are fewer",
        f'set environment: {{{_CPU_BINDING}: "0|1"}}, with the cores of each rank',
    ),
    KnownBad(
        "graphs for every k are not captured",
        "notice",
        lambda s: (
            s.config.orchestration.graphs_per_k is True
            and s.config.speculative is not None
            and not s.has_schedule
            and not needs_schedule(s.config, build=s.build, environment=s.environment)
        ),
        "graphs_per_k asks for CUDA graphs for every k, and none are captured: only the V2 runner "
        "on a GPU has them, on one data-parallel rank and without enforce_eager",
        "leave graphs_per_k out, or whatever has vLLM pick the V1 runner",
        ("orchestration", "graphs_per_k"),
    ),
    KnownBad(
        "sampling on a CPU",
        "warning",
        lambda s: s.drafts_on_a_cpu and s.samples,
        # Read in vLLM 0.32 and seen: _expand_kernel_impl writes floats to an int64 copy it drops,
        # and what is left for a temperature divides the logits of all drafts of the batch.
        # top_k: apply_top_k_only takes the maximum over a step's drafts, and fails without any.
        "vLLM's CPU build samples at a wrong temperature while it speculates, and alters greedy "
        "answers beside a sampled request; one with top_k ends the engine",
        "set temperature: 0, leave speculative_config out, or use a GPU",
        ("sampling", "temperature"),
    ),
    KnownBad(
        "sampled requests on a CPU",
        "notice",
        # Clients choose the temperature, and those that name none get 1 where nothing else is set.
        lambda s: s.drafts_on_a_cpu and not s.samples,
        "vLLM's CPU build, while it speculates, samples at a wrong temperature, and alters greedy "
        "answers beside a sampled request; one with top_k ends the engine",
        "send temperature: 0 with every request, or greedy ones under a name of exact_models",
        (SPECULATIVE,),
    ),
    KnownBad(
        "adapters on a CPU",
        "warning",
        lambda s: s.build.kind == "cpu" and bool(s.arg("enable_lora")),
        # Read in vLLM 0.32 and seen: lora_ops takes -1, "no adapter", for the last adapter's index,
        # and add_lora_logits as many rows as are sampled, of a prompt's that are as many as tokens.
        "vLLM's CPU build serves requests without a LoRA adapter with one that is in their batch, "
        "and one with prompt_logprobs, which `specdeck check` and `gate` send, ends the engine",
        "leave enable_lora out, serve the adapter by an engine of its own, or use a GPU",
        ("enable_lora",),
    ),
    KnownBad(
        "schedule on the V1 runner",
        "warning",
        lambda s: s.captures_graphs and s.uses_v1_runner and s.has_schedule,
        "a schedule of k costs the V1 runner its full CUDA graphs and can stall under load",
        f"leave {SCHEDULE} out: specdeck changes k live",
        (SPECULATIVE, SCHEDULE),
        49548,
    ),
    KnownBad(
        "schedule with MTP",
        "warning",
        lambda s: (
            s.captures_graphs
            and not s.uses_v1_runner
            and is_mtp(s.method)
            and s.has_schedule
            and is_too_old(s.build.version)
        ),
        "before vLLM 0.32, capturing CUDA graphs for a schedule of k crashed with MTP",
        f"leave {SCHEDULE} out, or use vLLM 0.32 or newer",
        (SPECULATIVE, SCHEDULE),
        48494,
    ),
    KnownBad(
        "schedule with a fixed k",
        "error",
        lambda s: s.method in FIXED_K and s.has_schedule,
        "this method asserts that k never changes: the schedule would end the engine",
        f"leave {SCHEDULE} out",
        (SPECULATIVE, SCHEDULE),
    ),
    KnownBad(
        "schedule with parallel drafting",
        "error",
        lambda s: s.drafts_all_or_none and _schedules_between(s),
        "parallel drafting makes all tokens or none: the schedule would end the engine",
        f"leave {SCHEDULE} out",
        (SPECULATIVE, SCHEDULE),
    ),
    KnownBad(
        "parallel drafting",
        "notice",
        lambda s: s.drafts_all_or_none,
        "k can be 0 or num_speculative_tokens, and no policy can choose it: all tokens are drafted"
        " at once, or none",
        "choose a draft without parallel_drafting to change k while traffic flows",
        (SPECULATIVE, "parallel_drafting"),
    ),
    KnownBad(
        "method with a fixed k",
        "notice",
        lambda s: s.method in FIXED_K,
        "k cannot be changed live: this method asserts that k is num_speculative_tokens",
        "choose another method to change k while traffic flows",
        (SPECULATIVE, "method"),
    ),
    KnownBad(
        "method that ignores k",
        "notice",
        lambda s: s.method == "custom_class",
        "k cannot be changed live: vLLM does not pass it to a proposer of your own",
        "choose another method to change k while traffic flows",
        (SPECULATIVE, "method"),
    ),
    KnownBad(
        "MTP without a k of 0",
        "notice",
        lambda s: s.method == "step3p5_mtp",
        "target-only is not possible live: this drafter has no way to draft nothing",
        "start a second engine without speculative_config for target-only",
        (SPECULATIVE, "method"),
    ),
    KnownBad(
        "MTP with context parallelism",
        "warning",
        lambda s: (
            s.captures_graphs and is_mtp(s.method) and s.arg("decode_context_parallel_size", 1) > 1
        ),
        "MTP with decode context parallelism and full CUDA graphs corrupts output silently",
        "set decode_context_parallel_size: 1, or enforce_eager: true",
        ("decode_context_parallel_size",),
        45425,
    ),
    KnownBad(
        "DFlash at greedy",
        "notice",
        lambda s: s.method == "dflash",
        "greedy output was reported to differ from the target's, even at k=1",
        "run `specdeck check` before relying on it",
        (SPECULATIVE, "method"),
        54928,
    ),
    KnownBad(
        "min_p with speculation",
        "error",
        lambda s: bool(s.config.sampling.min_p) and s.config.speculative is not None,
        "vLLM refuses every request that has min_p while speculation is configured",
        "leave min_p out, or speculative_config",
        ("sampling", "min_p"),
    ),
    KnownBad(
        "synthetic acceptance on a CPU",
        "error",
        lambda s: s.build.kind == "cpu" and s.spec("rejection_sample_method") == "synthetic",
        "synthetic acceptance ends a CPU engine at its first request",
        "use rejection_sample_method: standard",
        (SPECULATIVE, "rejection_sample_method"),
    ),
    KnownBad(
        "acceptance regardless of the target",
        "warning",
        lambda s: (
            s.build.kind != "cpu" and s.spec("rejection_sample_method") in ("synthetic", "fly")
        ),
        "drafts are accepted whatever the target says: the output is not the target's",
        "use rejection_sample_method: standard",
        (SPECULATIVE, "rejection_sample_method"),
    ),
    KnownBad(
        "block size on a CPU",
        "error",
        lambda s: s.build.kind == "cpu" and (s.arg("block_size") or _CPU_BLOCK) % _CPU_BLOCK != 0,
        "the CPU build requires blocks of a multiple of 32 tokens",
        "set block_size: 32 or leave it out",
        ("block_size",),
    ),
    KnownBad(
        "draft's tensor parallelism",
        "error",
        _draft_ranks,
        "a draft runs on one rank or on as many as the target",
        "set draft_tensor_parallel_size to 1 or to tensor_parallel_size",
        (SPECULATIVE, "draft_tensor_parallel_size"),
    ),
    KnownBad(
        "a draft model on fewer ranks",
        "error",
        _draft_on_fewer_ranks,
        "the V1 runner requires a draft model to run on as many ranks as the target",
        "leave draft_tensor_parallel_size out",
        (SPECULATIVE, "draft_tensor_parallel_size"),
    ),
    KnownBad(
        "GPUs for all ranks",
        "error",
        _too_few_gpus,
        "more ranks are asked for than this machine has GPUs",
        "lower tensor_parallel_size, or set distributed_executor_backend: ray for several machines",
        ("tensor_parallel_size",),
    ),
    KnownBad(
        "Ray",
        "error",
        lambda s: s.arg("distributed_executor_backend") == "ray" and not s.ray,
        "Ray is not installed",
        "pip install ray, or leave distributed_executor_backend out",
        ("distributed_executor_backend",),
    ),
    KnownBad(
        "exact names with full CUDA graphs",
        "notice",
        lambda s: bool(s.config.exact_models) and s.captures_graphs and s.method is not None,
        "a request under an exact name takes all others off the full CUDA graphs while it runs",
        "serve exact names from an engine of their own where the others' latency counts",
        ("exact_models",),
    ),
    KnownBad(
        "no statistics",
        "warning",
        lambda s: bool(s.arg("disable_log_stats")),
        "the engine publishes no counters: nothing can be watched and no change proven",
        "leave disable_log_stats out",
        ("disable_log_stats",),
    ),
    KnownBad(
        "a scheduler of your own",
        "warning",
        lambda s: s.arg("scheduler_cls") is not None,
        "live k is made for vLLM's own scheduler, and another may lose asynchronous scheduling",
        "leave scheduler_cls out",
        ("scheduler_cls",),
    ),
    KnownBad(
        "Rust front end",
        "warning",
        lambda s: s.is_on("VLLM_USE_RUST_FRONTEND"),
        "the Rust front end loads no plugins: the engine cannot be controlled",
        "unset VLLM_USE_RUST_FRONTEND",
    ),
    KnownBad(
        "development mode",
        "warning",
        lambda s: s.is_on("VLLM_SERVER_DEV_MODE"),
        "anyone who reaches the port can run code in the engine, API key or not",
        "unset VLLM_SERVER_DEV_MODE: specdeck does not need it",
    ),
)
