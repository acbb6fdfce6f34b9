"""Facts from vLLM's configuration: everything that computes, nothing that merely differs."""

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.fingerprint.name import compute_name
from specdeck.engine.fingerprint.sources import numeric_variables
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.fingerprint import config_facts, plain, sources
from specdeck.engine.plugin.secret_values import format_values
from specdeck.engine.protocol.messages import EXACT_VARIABLE, MASK_VARIABLE


@dataclass
class Holder:
    other: Any = None
    k: int = 3


BUILD = Build("0.32.0", "demo", "draft_model", "V1", 6)


class Mode(IntEnum):
    NONE = 0


@dataclass
class Model:
    model: str = "/models/a"
    tokenizer: str = "/models/a"
    tokenizer_revision: str | None = None
    revision: str | None = None
    generation_config: str = "auto"
    dtype: str = "bfloat16"
    hf_token: str | None = None
    api_key: str | None = None
    max_logprobs: int = 20
    _private: int = 1


@dataclass
class Parallel:
    tensor_parallel_size: int = 1
    data_parallel_rpc_port: int = 1234
    data_parallel_index: int = 0


@dataclass
class Compilation:
    mode: Mode = Mode.NONE
    cudagraph_capture_sizes: list[int] = field(default_factory=lambda: [1, 2])
    compilation_time: float = 0.0


@dataclass
class Speculative:
    method: str = "draft_model"
    num_speculative_tokens: int = 6
    draft_model_config: Model = field(default_factory=lambda: Model("/models/b"))


def config(**changed: Any) -> Any:
    parts: dict[str, Any] = {
        "model_config": Model(),
        "parallel_config": Parallel(),
        "compilation_config": Compilation(),
        "speculative_config": Speculative(),
        "load_config": SimpleNamespace(load_format="auto"),
        "instance_id": "random",
    }
    for place, value in changed.items():
        part, name = place.split("__")
        setattr(parts[part], name, value)
    return SimpleNamespace(**parts)


def name(config: Any) -> str:
    return compute_name("build", config_facts(config, BUILD))


@pytest.mark.parametrize(
    "change",
    [
        {"model_config__dtype": "float32"},
        {"model_config__max_logprobs": 5},
        {"parallel_config__tensor_parallel_size": 2},
        {"compilation_config__cudagraph_capture_sizes": [1]},
        {"speculative_config__method": "ngram"},
        {"speculative_config__num_speculative_tokens": 5},
    ],
)
def test_a_setting_moves_the_build(change: dict[str, Any]) -> None:
    assert name(config(**change)) != name(config())


@pytest.mark.parametrize(
    "change",
    [
        {"model_config__model": "/elsewhere"},
        {"model_config__hf_token": "hf_secret"},
        {"model_config__api_key": "sk-secret"},
        {"model_config___private": 2},
        {"parallel_config__data_parallel_rpc_port": 9},
        {"compilation_config__compilation_time": 12.5},
    ],
)
def test_a_place_a_port_and_a_measured_time_do_not(change: dict[str, Any]) -> None:
    found = config_facts(config(**change), BUILD)
    assert compute_name("build", found) == name(config())
    assert "secret" not in str(found)


def test_what_is_no_setting_has_a_steady_spelling() -> None:
    assert plain({"mode": Mode.NONE, "f": test_what_is_no_setting_has_a_steady_spelling}) == {
        "mode": "NONE",
        "f": f"{__name__}.test_what_is_no_setting_has_a_steady_spelling",
    }
    assert plain(object()) == "object"
    assert plain({3, 1, 2}) == ["1", "2", "3"]


def test_a_setting_counts_however_deep_a_model_has_it() -> None:
    weights = {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}}
    deep = {"thinker_config": {"text_config": {"quantization_config": weights}}}
    assert plain({"hf_overrides": deep}) == {"hf_overrides": deep}


def test_settings_that_hold_one_another_have_an_end() -> None:
    held = Holder()
    held.other = held
    assert plain({"a": held})
    endless: list[Any] = []
    endless.append(endless)
    assert plain(endless)


@pytest.mark.parametrize(
    "extra",
    [
        {"token": "s3cr3t"},
        {"apiKey": "s3cr3t", "accessToken": "s3cr3t"},
        {"store": {"passwd": "s3cr3t", "headers": {"Authorization": "Bearer s3cr3t-text"}}},
        {"bearer": "s3cr3t"},
        {"url": "redis://user:s3cr3t@cache:6379"},
        {"urls": ["redis://user:s3cr3t@a", ("redis://user:s3cr3t@b",)]},
        {"urls": {"redis://user:s3cr3t@a"}},
        {"redis://user:s3cr3t@a": 1},
        {"headers": ["Authorization: Bearer s3cr3t-text"]},
    ],
)
def test_no_credential_of_a_connector_is_a_fact(extra: dict[str, Any]) -> None:
    found = config_facts(SimpleNamespace(**vars(config()), additional_config=extra), BUILD)
    assert "s3cr3t" not in str(found)


def test_a_credential_under_a_second_name_is_no_fact() -> None:
    extra = {"redis_password": "s3cr3t-pw", "again": ["s3cr3t-pw"], "url": "x?s3cr3t-pw", "n": 5}
    changed = config(model_config__dtype="s3cr3t-pw")
    found = config_facts(SimpleNamespace(**vars(changed), additional_config=extra), BUILD)
    assert "s3cr3t" not in str(found)
    assert found["config"]["additional_config"] == {"again": ["***"], "url": "x?***", "n": 5}


def test_a_credential_of_a_server_under_a_second_name_is_no_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own arguments are in no VllmConfig."""
    (tmp_path / "arguments").write_text(format_values(["s3cr3t-pw"]))
    monkeypatch.setenv(MASK_VARIABLE, str(tmp_path / "arguments"))
    extra = {"again": "s3cr3t-pw"}
    found = config_facts(SimpleNamespace(**vars(config()), additional_config=extra), BUILD)
    assert found["config"]["additional_config"] == {"again": "***"}
    monkeypatch.setenv("VLLM_HOUSE", "s3cr3t-pw")
    assert config_facts(config(), BUILD)["environment"]["VLLM_HOUSE"] == "***"


def test_a_credential_of_a_section_that_is_no_fact_is_none_under_a_second_name() -> None:
    events = {"endpoint": "tcp://me:s3cr3t-pw@collector:5557"}
    more = {"kv_events_config": events, "additional_config": {"again": "s3cr3t-pw"}}
    found = config_facts(SimpleNamespace(**vars(config()), **more), BUILD)
    assert found["config"]["additional_config"] == {"again": "***"}


def test_settings_that_only_sound_secret_are_facts() -> None:
    extra = {"max_tokens": 5, "tokens_per_block": 16, "num_key_value_heads": 4, "tokenizer": "t"}
    found = config_facts(SimpleNamespace(**vars(config()), additional_config=extra), BUILD)
    assert found["config"]["additional_config"] == extra


def test_an_url_without_its_credentials_is_a_fact() -> None:
    assert plain({"url": "redis://user:s3cr3t@cache:6379"}) == {"url": "redis://***@cache:6379"}


def test_the_sources_are_target_draft_and_their_tokenizers() -> None:
    found = sources(config())
    assert {role: model["name"] for role, model in found["models"].items()} == {
        "target": "/models/a",
        "draft": "/models/b",
    }
    assert set(found["tokenizers"]) == {"tokenizer"}


def test_a_draft_with_a_tokenizer_of_its_own_brings_it() -> None:
    draft = Model("/models/b", tokenizer="/models/b")
    found = sources(config(speculative_config__draft_model_config=draft))
    assert found["tokenizers"]["draft_tokenizer"]["name"] == "/models/b"


def test_a_draft_within_the_target_is_no_second_model() -> None:
    assert "draft" not in sources(config(speculative_config__draft_model_config=Model()))["models"]


def test_a_draft_from_another_revision_of_the_target_is_a_second_model() -> None:
    draft = Model(revision="heads")
    found = sources(config(speculative_config__draft_model_config=draft))["models"]
    assert found["draft"]["revision"] == "heads"
    assert found["draft"]["name"] == found["target"]["name"]


def test_defaults_of_requests_in_a_folder_of_their_own_are_read_there() -> None:
    found = sources(config(model_config__generation_config="/defaults"))
    assert found["models"]["target"]["generation"] == "/defaults"


def test_the_place_of_defaults_of_requests_moves_nothing_and_that_there_is_one_does() -> None:
    names = {given: name(config(model_config__generation_config=given))
             for given in ("auto", "vllm", "/a", "/b")}  # fmt: skip
    assert names["/a"] == names["/b"]
    assert len({*names.values()}) == 3


def test_where_a_config_lies_and_whether_its_code_is_run_is_handed_on() -> None:
    plainly = sources(config())
    assert "trusted" not in str(plainly)
    trusting = config(
        model_config__hf_config_path="/c",
        model_config__trust_remote_code=True,
        model_config__code_revision="c0ffee",
        load_config__load_format="pt",
    )
    found = sources(trusting)
    assert found["models"]["target"].items() >= {
        "config": "/c", "trusted": True, "code_revision": "c0ffee", "load_format": "pt",
    }.items()  # fmt: skip
    assert found["tokenizers"]["tokenizer"]["trusted"]
    assert "trusted" not in found["models"]["draft"]


def test_a_draft_is_loaded_in_its_own_format_from_its_own_downloads() -> None:
    plainly = sources(config(load_config__download_dir="/big"))["models"]
    assert plainly["target"]["downloads"] == plainly["draft"]["downloads"] == "/big"
    own = SimpleNamespace(load_format="pt", download_dir="/fast")
    found = sources(config(speculative_config__draft_load_config=own))["models"]
    assert found["draft"].items() >= {"load_format": "pt", "downloads": "/fast"}.items()
    assert found["target"]["load_format"] == "auto"
    assert "downloads" not in found["target"]


@pytest.mark.parametrize(
    "variable",
    [
        *("VLLM_API_KEY", "VLLM_ADMIN_TOKEN", "NCCL_AUTH", "VLLM_S3_SECRET", "VLLM_PORT"),
        *("VLLM_HOST_IP", "VLLM_CACHE_ROOT", "VLLM_LOGGING_LEVEL", "TORCHINDUCTOR_CACHE_DIR"),
        *("VLLM_DP_RANK", "CUDA_VISIBLE_DEVICES", "HOME", "VLLM_PLUGINS", "NCCL_SOCKET_IFNAME"),
    ],
)
def test_secrets_and_whereabouts_are_no_facts(variable: str) -> None:
    assert numeric_variables({variable: "x"}) == {}


@pytest.mark.parametrize(
    "variable",
    [
        *("VLLM_BATCH_INVARIANT", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "NCCL_ALGO"),
        *("OMP_NUM_THREADS", "VLLM_KV_CACHE_LAYOUT", "VLLM_USE_V2_MODEL_RUNNER", "MKL_CBWR"),
        *("VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS",),
        *("FLA_TRIL_PRECISION", "USE_DEFAULT_FLA_NORM", "FORCE_NUM_KV_SPLITS"),
    ],
)
def test_what_changes_a_computation_is_one(variable: str) -> None:
    assert numeric_variables({variable: "1"}) == {variable: "1"}


def test_names_that_are_served_without_drafts_count_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = config_facts(config(), BUILD)
    assert "exact_models" not in without["config"]
    monkeypatch.setenv(EXACT_VARIABLE, '["tools-exact", "a"]')
    found = config_facts(config(), BUILD)
    assert found["config"].pop("exact_models") == ["a", "tools-exact"]
    assert found == without
