"""Which of vLLM's model runners a config comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdeck.engine.config.loader import load
from specdeck.engine.launch.model_runner import choose_runner


def chosen(
    folder: Path, text: str, environment: dict[str, str] | None = None, *, cpu: bool = False
) -> str:
    """The runner of a config of one model and `text`."""
    path = folder / "c.yaml"
    path.write_text(f"model: a/b\n{text}\n")
    return choose_runner(load(path), environment or {}, cpu=cpu)


def drafting(more: str) -> str:
    """A speculative_config of three tokens."""
    return f"speculative_config: {{num_speculative_tokens: 3, {more}}}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        drafting("method: eagle3, model: a/c"),
        drafting("method: mtp"),
        drafting("method: dflash, model: a/c, parallel_drafting: true"),
        drafting("method: ngram"),
        "pipeline_parallel_size: 2",
    ],
)
def test_a_gpu_has_the_v2_runner(tmp_path: Path, text: str) -> None:
    assert chosen(tmp_path, text) == "V2"
    assert chosen(tmp_path, text, cpu=True) == "V1"


@pytest.mark.parametrize(
    "text",
    [
        drafting("method: suffix"),
        drafting("method: medusa, model: a/c"),
        drafting("model: a.Proposer"),
        drafting("method: eagle, model: a/c, parallel_drafting: true"),
        drafting("method: draft_model, model: a/c, parallel_drafting: true"),
        drafting("model: a/c, use_heterogeneous_vocab: true"),
        "enable_dbo: true",
        "ubatch_size: 2",
        "distributed_executor_backend: external_launcher\npipeline_parallel_size: 2",
    ],
)
def test_what_v2_does_not_have_goes_to_v1(tmp_path: Path, text: str) -> None:
    assert chosen(tmp_path, text) == "V1"
    assert chosen(tmp_path, text, {"VLLM_USE_V2_MODEL_RUNNER": "1"}) == "V2"


@pytest.mark.parametrize(("value", "runner"), [("0", "V1"), ("1", "V2"), ("", "V2"), ("no", "V2")])
def test_the_environment_decides_where_it_is_a_number(
    tmp_path: Path, value: str, runner: str
) -> None:
    assert chosen(tmp_path, "", {"VLLM_USE_V2_MODEL_RUNNER": value}) == runner


@pytest.mark.parametrize(
    "text", ["watermark_config: {a: 1}", "attention_config: {hisparse_config: {a: 1}}"]
)
def test_what_only_v2_has_overrides_the_environment(tmp_path: Path, text: str) -> None:
    assert chosen(tmp_path, text, {"VLLM_USE_V2_MODEL_RUNNER": "0"}) == "V2"
