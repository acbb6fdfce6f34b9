from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from specdeck.engine.config.config import Config
from specdeck.engine.config.loader import load
from specdeck.engine.demo import deepen
from specdeck.engine.errors import ConfigError
from specdeck.engine.launch.launcher import deepen_target
from specdeck.engine.paths import locations

Loaded = Callable[[str], Config]
Refused = Callable[[str], str]

SPEC = "model: a/b\nspeculative_config:\n  model: a/c\n"


def test_vllm_arguments_pass_through_as_given(loaded: Loaded) -> None:
    config = loaded("model: a/b\nmax_model_len: 4k\nenforce_eager: true\nserved_model_name: x\n")
    assert config.engine_args == {
        "model": "a/b",
        "max_model_len": "4k",
        "enforce_eager": True,
        "served_model_name": ["x"],
    }
    assert config.served_name == "x"
    assert config.speculative is None
    assert config.k_max is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            SPEC + "  num_speculative_token: 5\n",
            "c.yaml:4: unknown key `num_speculative_token`: did you mean `num_speculative_tokens`?",
        ),
        (
            "model: a/b\n\nnum_speculative_token: 5\n",
            "c.yaml:3: unknown key `num_speculative_token`: did you mean `num_speculative_tokens`?",
        ),
        (
            SPEC + "  num_speculative_tokens: five\n",
            "c.yaml:4: `num_speculative_tokens` requires a whole number, not 'five'",
        ),
        (
            "model: a/b\nsampling:\n  temprature: 1\n",
            "c.yaml:3: unknown key `temprature`: did you mean `temperature`?",
        ),
        (
            "model: a/b\ntensorParallelSize: 2\n",
            "c.yaml:2: unknown key `tensorParallelSize`: did you mean `tensor_parallel_size`?",
        ),
        ("model: 5\n", "c.yaml:1: `model` requires text, not 5: put it in quotes"),
        (
            "model: a/b\nmax_num_seqs: true\n",
            "c.yaml:2: `max_num_seqs` requires a whole number, not true",
        ),
        (
            "model: a/b\nenforce_eager: 'yes'\n",
            "c.yaml:2: `enforce_eager` requires true or false, not 'yes'",
        ),
        (
            "model: a/b\ngpu_memory_utilization: .nan\n",
            "c.yaml:2: `gpu_memory_utilization` requires a finite number, not nan",
        ),
        (
            "model: a/b\ndtype: bflot16\n",
            "c.yaml:2: `dtype` requires one of its 6 values (did you mean 'bfloat16'?), "
            "not 'bflot16'",
        ),
        ("model: a/b\nmodel: a/c\n", "c.yaml:2: `model` is given twice: keep one of them"),
        ("model: a/b\nsampling: 5\n", "c.yaml:2: `sampling` requires a mapping, not 5"),
        (
            SPEC + "  num_speculative_tokens: 0\n",
            "c.yaml:4: `num_speculative_tokens` is 0: "
            "leave speculative_config out to serve target-only",
        ),
        (
            "dtype: auto\n",
            "c.yaml:1: no `model` to serve: add `model: …`, or `attach:` with a `url`",
        ),
        ("", "c.yaml:1: the config is empty: it needs at least `model`"),
        (
            "- a\n",
            "c.yaml:1: a config is `key: value` lines, not a list: begin with `model: …`",
        ),
        ("model: a\n b: c: d\n", "c.yaml:2: not valid YAML: mapping values are not allowed here"),
        ("model: a/b\non: 1\n", "c.yaml:2: the key 'on' is not text: put it in quotes"),
        ('"\\e[2J": 1\n', "c.yaml:1: the key '…' is not printable"),
        ("model: &a [*a]\n", "c.yaml:1: an alias that contains itself"),
        ("model: *hunter2\n", "c.yaml:1: not valid YAML: found undefined alias"),
        ("model: !hunter2!x y\n", "c.yaml:1: not valid YAML: found undefined tag handle"),
        (
            "model: !hunter2 x\n",
            "c.yaml:1: a value of a type (`!…`) means nothing here: put it in quotes",
        ),
        (
            "model: a/b\napi_key: sk-1\n",
            "c.yaml:2: `api_key` is a secret in a file: set VLLM_API_KEY in the environment",
        ),
        (
            "model: a/b\nport: 70000\n",
            "c.yaml:2: `port` requires at most 65535, not 70000",
        ),
        (
            "attach:\n  url: http://me:secret@host\n",
            "c.yaml:1: a URL holds no password: put the key's variable in api_key_env",
        ),
        ("attach:\n  url: host\n", "c.yaml:1: 'host' is not a URL such as http://127.0.0.1:8000"),
        (
            "model: a/b\norchestration:\n  breaker: never\n  draft_acceptance_threshold: 98%\n",
            "c.yaml:4: `draft_acceptance_threshold` makes no sense for the breaker: "
            "acceptance_floor=0.98 is more than repetition=0.97: change it or leave it out",
        ),
        (
            "model: a/b\norchestration:\n  adaptive_draft: true\n  policy: threshold\n"
            "  max_draft_length: 1\n",
            "c.yaml:5: `max_draft_length` makes no sense for the threshold policy: "
            "min_draft_length=2 is more than max_draft_length=1: change it or leave it out",
        ),
        (
            "model: a/b\nuds: /tmp/s\n",
            "c.yaml:2: `uds` is not for a config: leave it out: specdeck talks HTTP on a port",
        ),
        (
            "model: a/b\nssl_certfile: tls.crt\n",
            "c.yaml:2: `ssl_certfile` is not for a config: leave it out: specdeck talks HTTP to "
            "the engine; end TLS in front of it",
        ),
        (
            "seed: 1\nmodel: s3://me:hush@store/model\n",
            "c.yaml:2: `model` has a credential in it, which the engine tells: "
            "give it in the environment, such as HF_TOKEN or AWS_SECRET_ACCESS_KEY",
        ),
        (
            "model: a/b\nserved_model_name: [x, password=hush]\n",
            "c.yaml:2: `served_model_name` has a credential in it, which the engine tells: "
            "give it in the environment, such as HF_TOKEN or AWS_SECRET_ACCESS_KEY",
        ),
        (
            "model: a/b\nserved_model_name: [x, &pw hush-hush]\n"
            "additional_config: {redis_password: *pw}\n",
            "c.yaml:2: `served_model_name` has a credential in it, which the engine tells: "
            "give it in the environment, such as HF_TOKEN or AWS_SECRET_ACCESS_KEY",
        ),
        (
            "model: a/b\nserved_model_name: [x, 'https://hub/x?api_key=hush']\n",
            "c.yaml:2: `served_model_name` has a credential in it, which the engine tells: "
            "give it in the environment, such as HF_TOKEN or AWS_SECRET_ACCESS_KEY",
        ),
        (
            "model: a/b\nspeculative_config:\n  method: eagle\n  num_speculative_tokens: 3\n"
            "  model: https://me:hush@hub/draft\n",
            "c.yaml:5: `model` has a credential in it, which the engine tells: "
            "give it in the environment, such as HF_TOKEN or AWS_SECRET_ACCESS_KEY",
        ),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(refused: Refused, text: str, line: str) -> None:
    assert refused(text) == line


@pytest.mark.parametrize(
    "address",
    ["ops:hush@h:1", "ftp://ops:hush@h", "http://ops:hush@h:no", "ftp://h/?key=hush", "h:1#hush"],
)
@pytest.mark.parametrize(
    "block", ["{url: 'U'}", "{urls: ['U']}", "{url: 'http://h', reference: 'U'}"]
)
def test_no_error_repeats_a_credential_of_an_engines_address(
    refused: Refused, block: str, address: str
) -> None:
    line = refused(f"attach: {block.replace('U', address)}\n")
    assert line.startswith("c.yaml:1: ")
    assert "hush" not in line


@pytest.mark.parametrize("policy", ["", "  adaptive_draft: true\n", "  policy: threshold\n"])
def test_bounds_that_only_another_policy_could_not_go_by_are_taken(
    loaded: Loaded, policy: str
) -> None:
    config = loaded(f"model: a/b\norchestration:\n  max_draft_length: 1\n{policy}")
    assert config.orchestration.max_draft_length == 1


def test_a_secret_is_never_repeated_in_its_error(refused: Refused) -> None:
    line = refused("model: a/b\nenvironment:\n  MY_API_KEY: sk-topsecret\n")
    assert "sk-topsecret" not in line
    assert "set it where specdeck is started" in line
    assert "sk-topsecret" not in refused("model: a/b\napi_key: sk-topsecret\n")


def test_a_variable_wants_text(refused: Refused) -> None:
    line = refused("model: a/b\nenvironment:\n  OMP_NUM_THREADS: 2\n")
    assert line == "c.yaml:3: `OMP_NUM_THREADS` requires text, not 2: put it in quotes"


def test_development_mode_cannot_be_switched_on(refused: Refused) -> None:
    line = refused("model: a/b\nenvironment:\n  VLLM_SERVER_DEV_MODE: '1'\n")
    assert line.startswith("c.yaml:3: `VLLM_SERVER_DEV_MODE` lets anyone run code")


def test_a_path_that_is_no_config_is_one_line(tmp_path: Path) -> None:
    garbage = tmp_path / "g.yaml"
    garbage.write_bytes(b"model: a\n\xff\xfe\x00")
    large = tmp_path / "l.yaml"
    large.write_bytes(b"#" * (2 << 20))
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "none.yaml", "does not exist"),
        (garbage, "g.yaml:2: this is not text in UTF-8"),
        (large, "larger than a config"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(path)


def test_aliases_that_stand_for_a_million_values_are_refused(refused: Refused) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 7):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    assert "more values than a config ever has" in refused("\n".join(lines))


def test_a_file_of_too_many_values_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("model:\n" + "- 1\n" * 250_000)
    with pytest.raises(ConfigError) as found:
        load(path)
    assert found.value.message == "more values than a config ever has"
    assert found.value.place is not None
    assert (found.value.place.line or 0) in range(1, 100_000)


@pytest.mark.parametrize(
    "number", ["1" + ":59" * 100_000, "1" + ":59" * 100_000 + ".5", "9" * 2_000], ids=range(3)
)
def test_a_number_without_end_is_refused_at_once(refused: Refused, number: str) -> None:
    assert f"a number of {len(number):,} characters" in refused(f"model: a/b\nport: {number}\n")


def test_deep_nesting_is_refused(refused: Refused) -> None:
    assert "nested too deeply" in refused("model: " + "[" * 5000)


def test_merged_keys_are_read_and_own_ones_win(loaded: Loaded) -> None:
    config = loaded(
        "speculative_config: {method: ngram, num_speculative_tokens: 3}\n"
        "override_generation_config: &base {temperature: 0.5, top_k: 4}\n"
        "additional_config:\n  <<: *base\n  top_k: 5\nmodel: a/b\n"
    )
    assert config.engine_args["additional_config"] == {"temperature": 0.5, "top_k": 5}


def test_model_paths_are_relative_to_the_config(tmp_path: Path) -> None:
    (tmp_path / "conf" / "weights").mkdir(parents=True)
    path = tmp_path / "conf" / "c.yaml"
    path.write_text(
        "model: weights\ntokenizer: org/name\n"
        "speculative_config: {model: ../draft, num_speculative_tokens: 2}\n"
    )
    config = load(path)
    assert config.model == str(tmp_path / "conf" / "weights")
    assert config.engine_args["tokenizer"] == "org/name"
    assert config.draft == str(tmp_path / "draft")


def test_the_reference_keeps_the_sampling_and_drops_the_speculation(loaded: Loaded) -> None:
    config = loaded(SPEC + "  num_speculative_tokens: 5\nsampling: {temperature: 0.7}\n")
    reference = config.reference()
    assert reference.speculative is None
    assert reference.sampling == config.sampling
    assert reference.model == config.model
    assert config.k_max == 5


def test_two_places_for_one_sampling_default_must_agree(refused: Refused) -> None:
    line = refused(
        "model: a/b\noverride_generation_config: {top_p: 0.5}\nsampling:\n  top_p: 0.9\n"
    )
    assert line.startswith("c.yaml:4: `top_p` differs")


def test_a_deepened_target_keeps_its_served_name(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded("model: a/b\nserved_model_name: a/b\ndeepen: {layers: 8}\n")
    monkeypatch.setattr(deepen, "deepen_model", lambda source, layers, destination: Path("/deep"))
    served = deepen_target(config, locations({"SPECDECK_HOME": str(tmp_path)}))
    assert (served.model, served.served_name, served.deepen) == ("/deep", "a/b", None)


def test_two_targets_in_folders_of_one_name_have_a_deepened_one_each(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepen, "deepen_model", lambda source, layers, destination: destination)
    made = {
        deepen_target(
            loaded(f"model: {tmp_path}/{place}/target\ndeepen: {{layers: 8}}\n"),
            locations({"SPECDECK_HOME": str(tmp_path)}),
        ).model
        for place in ("a", "b", "a/../a")
    }
    assert len(made) == 2


def test_accepted_arguments_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("model: a/b\nbrand_new: {x: 1}\n")
    config = load(path, accepted=frozenset({"model", "brand_new"}))
    assert config.engine_args["brand_new"] == {"x": 1}


def test_shares_may_be_written_as_percentages(loaded: Loaded) -> None:
    alerts = loaded("model: a/b\nalerts: {mismatch_max: 1.5%, acceptance_floor: 0.4}\n").alerts
    assert (alerts.mismatch_max, alerts.acceptance_floor) == (0.015, 0.4)


def test_importing_the_package_imports_neither_pydantic_nor_yaml() -> None:
    code = "import sys, specdeck.engine.config; print({'pydantic', 'yaml'} & set(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"


def refusal(path: Path) -> str | None:
    """The line of the error that loading `path` gives; None when it loads."""
    try:
        load(path)
    except ConfigError as error:
        return error.line()
    return None


_WORDS = st.sampled_from(
    [
        *("model", "speculative_config", "sampling", "orchestration", "attach", "environment"),
        *("num_speculative_tokens", "speculative_disable_by_batch_size", "spec-model", "port"),
        *("<<", "- ", ": ", "{", "}", "[", "]", "&a ", "*a", "'", '"', "\n", "\n  ", "!!set ", "~"),
        *("5", "1e400", ".inf", "0o8", "true", "-", "--", "\\ud800", "2024-13-45", "|\n", "? "),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.one_of(st.text(), st.lists(_WORDS, max_size=25).map("".join)))
@example("model: !!python/object:os.system x")
@example("model: 1:99999999999999999999:0")
@example("model: a\nspeculative_disable_by_batch_size: 3\nspeculative_config: 7")
@example("model: a\nspeculative_config: '" + "[" * 3000 + "'")
@example("model: a\nseed: " + "9" * 5000)
@example("model: a\n? {a: b}\n: c")
@example("model: a\n--: 1")
def test_any_text_loads_or_is_a_config_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    line = refusal(path)
    assert line is None or (line.startswith(str(path)) and line.isprintable())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.binary())
def test_any_bytes_load_or_are_a_config_error(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(raw)
    assert (refusal(path) or str(path)).startswith(str(path))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    [
        *("model", "speculative_config", "sampling", "orchestration", "attach", "alerts"),
        *("exact_models", "deepen", "fingerprint", "host", "port", "speculative_model"),
        "environment",
        *("draft_acceptance_threshold", "temperature", "dtype", "worker_use_ray", "swap_space"),
        *("override_generation_config", "speculative_disable_by_batch_size", "max-model-len"),
        *("num_speculative_tokens", "served_model_name", "spec_tokens"),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.dictionaries(_KEYS, _VALUES, max_size=6))
def test_any_values_under_real_keys_load_or_are_a_config_error(
    tmp_path: Path, data: dict[str, object]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"model": "a", **data}), encoding="utf-8")
    line = refusal(path)
    assert line is None or (line.startswith(str(path)) and line.isprintable())


def test_exact_names_are_served_beside_the_others(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    lines = ("model: org/m", "served_model_name: tools", "exact_models: [tools-exact]")
    speculative = "speculative_config: {method: ngram, num_speculative_tokens: 4}"
    path.write_text("\n".join([*lines, speculative]))
    config = load(path)
    assert config.engine_args["served_model_name"] == ["tools", "tools-exact"]
    assert config.exact_models == ("tools-exact",)
    assert [str(notice.place) for notice in config.notices] == [f"{path}:3"]


def test_without_a_served_name_the_models_own_stays_first(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("model: org/m\nexact_models: [m-exact]\n")
    assert load(path).engine_args["served_model_name"] == ["org/m", "m-exact"]


@pytest.mark.parametrize("names", ["[a, a]", '[""]', '[" a"]', "a", "[1]", '["a\\tb"]'])
def test_names_that_are_none_are_refused_by_line(tmp_path: Path, names: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"model: org/m\nexact_models: {names}\n")
    assert (refusal(path) or "").startswith(f"{path}:2")


@pytest.mark.parametrize(
    "text",
    [
        "alerts: {webhook:https://hooks.example/services/T0/Hush}\n",
        "alerts: https://hooks.example/Hush\n",
        "alerts: hooks.example/services/Hush\n",
        "alerts:\n  webhook https://hooks.example/Hush\n",
        "alerts: [webhook: https://hooks.example/Hush]\n",
        "alerts:webhook:https://hooks.example/Hush: 1\n",
        "https://hooks.example/Hush: 1\n",
        "hooks.example/services/Hush: 1\n",
        "environment: {HF_TOKEN=Hush}\n",
        "environment: {HF_TOKEN:Hush}\n",
        "environment: {HF_TOKEN=Hush: x}\n",
        "environment: {HF_TOKEN Hush: x}\n",
        "environment: [HF_TOKEN=Hush]\n",
        "environment: HF_TOKEN=Hush\n",
        "environment: HF_TOKEN Hush\n",
        "VLLM_API_KEY=Hush: 1\n",
        "api_key:Hush: 1\n",
        "api_key=Hush: 1\napi_key=Hush: 1\n",
        "? {api_key: Hush}\n: 1\n",
        'hf_token: "Hush\\0"\n',
        '"api_key=Hush\\e": 1\n',
        "speculative_config: {method: ngram, hf_token=Hush: 1}\n",
        "orchestration: {policy=Hush: 1}\n",
    ],
)
def test_a_secret_that_a_slip_made_a_key_is_not_repeated(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"model: a/b\n{text}")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert "Hush" not in caught.value.line()
    assert "Hush" not in json.dumps(caught.value.as_json())
