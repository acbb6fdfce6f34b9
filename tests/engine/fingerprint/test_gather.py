"""What is read of models, tokenizers and libraries, and what is said when it cannot be."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.fingerprint.digest import Digests
from specdeck.engine.fingerprint.gather import Gatherer
from specdeck.engine.fingerprint.sources import find_model, parse_mapped_libraries, weight_files
from specdeck.engine.hub_cache import find_hub_cache, name_folder

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue\nGCC version:"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    where = tmp_path / "target"
    where.mkdir()
    (where / "model-1.safetensors").write_bytes(b"one")
    (where / "model-2.safetensors").write_bytes(b"two")
    (where / "config.json").write_text('{"hidden_size": 8, "_name_or_path": "x"}')
    (where / "generation_config.json").write_text('{"temperature": 0.6}')
    (where / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": []})
    )
    (where / "tokenizer_config.json").write_text('{"chat_template": "{{ x }}"}')
    return where


def gather(
    *,
    driver: str = "570.1",
    libraries: tuple[str, ...] = (),
    began: float | None = None,
    environment: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
    **models: Path,
) -> Any:
    """`more` is said of every model and tokenizer."""
    gatherer = Gatherer(
        Digests(None),
        environment or {},
        text=lambda path: DRIVER.format(driver) if "nvidia" in path else None,
        version=lambda package: {"torch": "2.13.0"}.get(package),
    )
    return gatherer.gather(
        {
            "models": {role: {"name": str(path), **(more or {})} for role, path in models.items()},
            "tokenizers": (
                {"tokenizer": {"name": str(models["target"]), **(more or {})}} if models else {}
            ),
            "libraries": list(libraries),
            "began": began,
        }
    )


def test_all_is_read_and_nothing_is_left_out(model: Path) -> None:
    found = gather(target=model)
    target = found["model"]["target"]
    assert set(target["weights"]) == {"model-1.safetensors", "model-2.safetensors"}
    assert target["sampling"] == {"temperature": 0.6}
    assert set(found["model"]["tokenizer"]) == {
        "vocab", "merges", "rules", "special", "chat_template",
    }  # fmt: skip
    assert found["runtime"]["driver"].endswith("570.1 Tue")
    assert found["unread"] == []


@pytest.mark.parametrize(
    ("file", "content", "moved"),
    [
        ("model-2.safetensors", "twp", {"target.weights"}),
        ("config.json", '{"hidden_size": 9}', {"target.shape"}),
        ("config.json", '{"hidden_size": 8, "_name_or_path": "y"}', set()),
        ("generation_config.json", '{"temperature": 1.0}', {"target.sampling"}),
        ("tokenizer_config.json", '{"chat_template": "{{ y }}"}', {"tokenizer.chat_template"}),
        (
            "tokenizer_config.json",
            '{"chat_template": "{{ x }}", "sep_token": "|"}',
            {"tokenizer.settings"},
        ),
        ("tokenizer_config.json", '{"chat_template": "{{ x }}", "model_max_length": 7}', set()),
        ("preprocessor_config.json", '{"size": 224}', {"target.files"}),
        ("params.json", '{"dim": 8}', {"target.files"}),
        ("model.safetensors.index.json", '{"weight_map": {}}', {"target.files"}),
        ("hf_quant_config.json", "{}", {"target.files"}),
        ("qwen.tiktoken", "IQ== 0", {"target.files"}),
        ("tokenizer.model.v3", "piece", {"target.files"}),
        ("tokenizer.4.0.0.json", "{}", {"target.files"}),
        ("torchao_config.json", "{}", {"target.files"}),
        ("rwkv_vocab_v20230424.txt", "1 'a' 1", {"target.files"}),
        ("trainer_state.json", "{}", set()),
        ("train_results.json", "{}", set()),
        ("deepened.json", "{}", set()),
        ("LICENSE.txt", "free", set()),
        (".cached.json", "{}", set()),
        ("modeling_x.py", "pass", set()),
        ("README.md", "hello", set()),
    ],
)
def test_each_file_moves_its_own_fact(
    model: Path, file: str, content: str, moved: set[str]
) -> None:
    def facts() -> dict[str, Any]:
        found = gather(target=model)["model"]
        return {f"{role}.{name}": v for role, part in found.items() for name, v in part.items()}

    before = facts()
    (model / file).write_text(content)
    after = facts()
    assert {one for one in after.keys() | before if after.get(one) != before.get(one)} == moved


def replace(path: Path, content: str) -> None:
    """As `cp -p` and `mv` put another file in its place: its age is of long ago."""
    (aside := path.with_name("aside")).write_text(content)
    os.utime(aside, (1_000_000_000, 1_000_000_000))
    aside.rename(path)


@pytest.mark.parametrize(
    ("file", "fact"),
    [
        ("model-2.safetensors", "target.weights.model-2.safetensors"),
        ("config.json", "target.shape"),
        ("generation_config.json", "target.sampling"),
        ("tokenizer.json", "tokenizer.tokenizer.json"),
        ("tokenizer_config.json", "tokenizer.tokenizer_config.json"),
        ("params.json", "target.files.params.json"),
        ("README.md", None),
    ],
)
def test_a_file_that_changed_since_the_engine_began_to_start_leaves_the_facts_partial(
    model: Path, file: str, fact: str | None
) -> None:
    (model / "params.json").write_text("{}")
    time.sleep(0.02)
    began = time.time()
    assert gather(began=began, target=model)["unread"] == []
    time.sleep(0.02)
    replace(model / file, "{}")
    unread = gather(began=began, target=model)["unread"]
    # What took another's place changed the folder, too.
    assert {one["fact"] for one in unread} - {"model.target.files"} == (
        {f"model.{fact}"} if fact else set()
    )
    assert all("after the engine began to start" in one["reason"] for one in unread)
    assert gather(began=time.time() + 1, target=model)["unread"] == []


def test_a_file_that_was_there_during_the_load_alone_leaves_the_facts_partial(model: Path) -> None:
    (extra := model / "model-3.safetensors").write_bytes(b"three")
    time.sleep(0.02)
    began = time.time()
    time.sleep(0.02)
    extra.unlink()
    unread = gather(began=began, target=model)["unread"]
    assert [one["fact"] for one in unread] == ["model.target.files"]


def test_what_the_start_has_downloaded_has_not_changed(tmp_path: Path) -> None:
    cache = tmp_path / "models--a--b"
    snapshot = cache / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("c0ffee")
    (cache / "blob").write_bytes(b"weights")
    (snapshot / "model.safetensors").symlink_to("../../blob")
    (snapshot / "config.json").write_text("{}")
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    found = gather(began=1.0, environment=environment, target=Path("a/b"))
    assert set(found["model"]["target"]["weights"]) == {"model.safetensors"}
    assert found["unread"] == []
    # One that the operator names by its place was there before.
    assert gather(began=1.0, target=snapshot)["unread"]


def test_a_package_that_is_installed_during_a_start_leaves_its_version_open(
    tmp_path: Path,
) -> None:
    for name in ("transformers-5.1.0", "llm_guidance-1.0", "opencv_python_headless-4.1"):
        (folder := tmp_path / f"{name}.dist-info").mkdir()
        (folder / "METADATA").touch()
    found = Gatherer(Digests(None), {}).gather({"search": [str(tmp_path)] * 2, "began": 1.0})
    facts = [one["fact"] for one in found["unread"]]
    assert facts == ["runtime.versions.opencv-python-headless", "runtime.versions.transformers"]


def test_code_that_is_edited_during_a_start_leaves_its_package_open(tmp_path: Path) -> None:
    (package := tmp_path / "house_rules").mkdir()
    (package / "__init__.py").touch()
    (by_path := tmp_path / "drawn_1234567.py").touch()
    request = {
        "loaded": {"house_rules": str(package), "drawn_1234567": str(by_path)},
        "search": [str(tmp_path)],
    }
    found = Gatherer(Digests(None), {}).gather({**request, "began": 1.0})
    assert [one["fact"] for one in found["unread"]] == ["runtime.code.house_rules"]
    assert "loaded by path" in found["runtime"]["code"]  # it may be written at every start
    assert Gatherer(Digests(None), {}).gather(request)["unread"] == []


TRUSTED = {"trusted": True, "code_revision": None}


def test_code_that_comes_with_a_model_is_a_fact_where_it_is_run(model: Path) -> None:
    def digests() -> dict[str, str]:
        found: dict[str, str] = gather(target=model, more=TRUSTED)["model"]["target"]["files"]
        return found

    (model / "layers").mkdir()
    (model / "layers" / "mlp.py").write_text("one")
    (model / "..2026_11_29").mkdir()  # a volume of Kubernetes draws it at each mount
    (model / "..2026_11_29" / "tokenization_x.py").write_text("one")
    (model / "tokenization_x.py").write_text("one")
    before = digests()
    (model / "layers" / "mlp.py").write_text("two")
    after = digests()
    assert before.keys() == after.keys() == {"layers/mlp.py", "tokenization_x.py"}
    assert {name for name in before if before[name] != after[name]} == {"layers/mlp.py"}


def test_code_of_another_repository_is_read_there(model: Path, tmp_path: Path) -> None:
    mapped = {"auto_map": {"AutoTokenizer": ["org/code--tok.Slow", None], "AutoModel": "own.M"}}
    (model / "tokenizer_config.json").write_text(json.dumps(mapped))
    hub = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    missed = gather(target=model, more=TRUSTED, environment=hub)
    assert missed["unread"] == [
        {"fact": "model.target.files.org/code", "reason": "its code is not on this machine"}
    ]
    snapshot = tmp_path / "hub" / "models--org--code" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / "tok.py").write_text("pass")
    pinned = {**TRUSTED, "code_revision": "c0ffee"}
    found = gather(target=model, more=pinned, environment=hub)
    assert set(found["model"]["target"]["files"]) == {"org/code/tok.py"}
    assert found["unread"] == []


def test_settings_that_cannot_be_read_are_named_beside_their_code(model: Path) -> None:
    (model / "tok.py").write_text("pass")
    (model / "video_processor.json").write_text("{broken")
    found = gather(target=model, more=TRUSTED)
    assert [one["fact"] for one in found["unread"]] == ["model.target.files.code"]
    assert "video_processor.json" in found["model"]["target"]["files"]


def test_a_config_in_a_folder_of_its_own_is_read_there(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "config"
    other.mkdir()
    (other / "config.json").write_text('{"rope_theta": 1}')
    (other / "generation_config.json").write_text('{"temperature": 0.1}')
    more = {**TRUSTED, "config": str(other)}
    before = gather(target=model, more=more)["model"]["target"]
    assert before["sampling"] == {"temperature": 0.1}
    (other / "config.json").write_text('{"rope_theta": 2}')
    (other / "configuration_x.py").write_text("pass")
    (model / "config.json").write_text('{"hidden_size": 9}')
    after = gather(target=model, more=more)["model"]["target"]
    assert before["shape"] != after["shape"]
    assert set(after["config_files"]) == {"configuration_x.py"}
    absent = gather(target=model, more={"config": str(tmp_path / "gone")})
    assert [one["fact"] for one in absent["unread"]] == ["model.target.shape"]


def test_files_of_a_tokenizer_elsewhere_are_facts_of_its_own(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "tokenizer"
    other.mkdir()
    (other / "tokenizer_config.json").write_text("{}")
    (other / "tok.py").write_text("pass")
    found = Gatherer(Digests(None), {}).gather({
        "models": {"target": {"name": str(model), **TRUSTED}},
        "tokenizers": {"tokenizer": {"name": str(other), **TRUSTED}},
    })["model"]  # fmt: skip
    assert set(found["tokenizer"]["files"]) == {"tok.py"}
    assert "files" not in found["target"]


def test_a_merge_moves_the_merges_alone(model: Path) -> None:
    before = gather(target=model)["model"]["tokenizer"]
    (model / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": {"a": 0}, "merges": [["a", "a"]]}, "added_tokens": []})
    )
    after = gather(target=model)["model"]["tokenizer"]
    assert {name for name in before if before[name] != after[name]} == {"merges"}


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"type": "WordPiece"}},
        {"model": {"ignore_merges": True}},
        {"model": {"byte_fallback": True}},
        {"model": {"unheard_of": 1}},
        {"pre_tokenizer": {"type": "ByteLevel"}},
        {"truncation": {"max_length": 8}},
        {"unheard_of": 1},
    ],
)
def test_every_other_part_of_a_tokenizer_moves_its_rules(
    model: Path, change: dict[str, Any]
) -> None:
    def parts(change: dict[str, Any]) -> dict[str, str]:
        bpe = {"type": "BPE", "vocab": {"a": 0}, "merges": [], "ignore_merges": False}
        whole = {"added_tokens": [], **change, "model": {**bpe, **change.get("model", {})}}
        (model / "tokenizer.json").write_text(json.dumps(whole))
        found: dict[str, str] = gather(target=model)["model"]["tokenizer"]
        return found

    before, after = parts({}), parts(change)
    assert {name for name in before if before[name] != after[name]} == {"rules"}


def test_the_format_of_a_tokenizers_file_moves_nothing(model: Path) -> None:
    before = gather(target=model)["model"]["tokenizer"]
    same = {"version": "1.0", **json.loads((model / "tokenizer.json").read_text())}
    (model / "tokenizer.json").write_text(json.dumps(same, indent=4, sort_keys=True))
    assert gather(target=model)["model"]["tokenizer"] == before


@pytest.mark.parametrize("name", ["tekken.json", "tokenizer.model"])
def test_a_second_tokenizer_beside_the_first_is_digested_too(model: Path, name: str) -> None:
    first = gather(target=model)["model"]["tokenizer"]
    (model / name).write_text("one")
    one = gather(target=model)["model"]["tokenizer"]
    (model / name).write_text("two")
    two = gather(target=model)["model"]["tokenizer"]
    (part,) = one.keys() - first.keys()
    assert one[part] != two[part]
    assert {key: one[key] for key in first} == {key: two[key] for key in first} == first


@pytest.mark.parametrize("content", ["[]", '{"model": [1]}', '{"model": null}'])
def test_a_tokenizer_of_an_odd_form_ends_no_reading(model: Path, content: str) -> None:
    (model / "tokenizer.json").write_text(content)
    found = gather(target=model)
    assert found["model"]["target"]["weights"]
    assert found["model"]["tokenizer"] or found["unread"][0]["fact"] == "model.tokenizer"


@pytest.mark.parametrize(
    ("setting", "moved"),
    [
        ({"add_prefix_space": True}, {"special"}),
        ({"split_special_tokens": True}, {"special"}),
        ({"eos_token": "</s>"}, {"special"}),
        ({"bos_token": None}, {"special"}),
        ({"add_bos_token": False}, {"special"}),
        ({"tokenize_chinese_chars": False}, {"settings"}),
        ({"errors": None}, {"settings"}),
        ({"offset": 0}, {"settings"}),
        ({"never_split": []}, {"settings"}),
        ({"processor_class": "XProcessor"}, {"settings"}),
        ({"extra_special_tokens": {"image_token": "<image>"}}, {"settings"}),
        ({"extra_special_tokens": {}, "backend": "tokenizers", "padding_side": "left"}, set()),
    ],
)
def test_a_setting_of_the_tokenizer_moves_the_fact_it_belongs_to(
    model: Path, setting: dict[str, Any], moved: set[str]
) -> None:
    before = gather(target=model)["model"]["tokenizer"]
    settings = {**json.loads((model / "tokenizer_config.json").read_text()), **setting}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    after = gather(target=model)["model"]["tokenizer"]
    assert {name for name in after if before.get(name) != after[name]} == moved


def test_another_driver_moves_the_runtime_alone(model: Path) -> None:
    before, after = gather(target=model), gather(target=model, driver="575.2")
    assert before["model"] == after["model"]
    assert before["runtime"]["driver"] != after["runtime"]["driver"]


def test_a_replaced_library_file_is_noticed(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "torch" / "lib" / "libtorch.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"one")
    before = gather(libraries=(str(library),))["runtime"]["libraries"]
    library.write_bytes(b"two")
    after = gather(libraries=(str(library),))["runtime"]["libraries"]
    assert before.keys() == after.keys() == {"torch/lib/libtorch.so"}
    assert before != after


def test_a_package_may_have_files_of_any_name(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.py")).write_text("one")
    found = Gatherer(Digests(None), {}).gather({"named": {"house": str(tmp_path)}})
    assert set(found["runtime"]["code"]) == {"house"}


def test_an_edited_package_moves_the_runtime(tmp_path: Path) -> None:
    package = tmp_path / "vllm"
    (package / "v1").mkdir(parents=True)
    (package / "v1" / "sampler.py").write_text("one")
    (package / "table.json").write_text("{}")
    module = tmp_path / "sitecustomize.py"
    module.write_text("pass")

    def read() -> dict[str, str]:
        found = Gatherer(Digests(None), {}).gather(
            {"loaded": {"vllm": str(package), "sitecustomize": str(module)},
             "named": {"gone": str(tmp_path / "gone")}}
        )  # fmt: skip
        assert found["bytes"] == len("one" + "pass")
        assert [one["fact"] for one in found["unread"]] == ["runtime.code.gone"]
        code: dict[str, str] = found["runtime"]["code"]
        return code

    before = read()
    (package / "table.json").write_text("[]")
    assert read() == before
    (package / "v1" / "sampler.py").write_text("two")
    edited = read()
    assert edited["sitecustomize"] == before["sitecustomize"]
    (package / "v1" / "sampler.py").rename(package / "sampler.py")
    assert len({before["vllm"], edited["vllm"], read()["vllm"]}) == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_weights_that_may_not_be_read_are_named(model: Path) -> None:
    (model / "model-2.safetensors").chmod(0)
    found = gather(target=model)
    assert found["unread"] == [
        {"fact": "model.target.weights.model-2.safetensors", "reason": "Permission denied"}
    ]


def test_a_dangling_link_is_named_and_the_rest_is_read(model: Path) -> None:
    (model / "model-2.safetensors").unlink()
    (model / "model-2.safetensors").symlink_to(model / "gone")
    found = gather(target=model)
    assert found["unread"] == [
        {"fact": "model.target.weights.model-2.safetensors", "reason": "No such file or directory"}
    ]
    assert found["model"]["target"]["weights"]["model-2.safetensors"] is None
    assert found["model"]["target"]["weights"]["model-1.safetensors"]


def test_a_broken_tokenizer_and_an_absent_model_are_named(model: Path, tmp_path: Path) -> None:
    (model / "tokenizer.json").write_text("{broken")
    found = gather(target=model, draft=tmp_path / "nowhere")
    assert {one["fact"] for one in found["unread"]} == {"model.draft", "model.tokenizer"}


def test_a_model_of_the_hub_is_found_in_the_local_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--a--b" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    refs = tmp_path / "hub" / "models--a--b" / "refs"
    refs.mkdir()
    (refs / "main").write_text("c0ffee")
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    assert find_model("a/b", None, environment) == snapshot
    assert find_model("a/b", "c0ffee", environment) == snapshot
    assert find_model("a/c", None, environment) is None
    # vLLM has it from ModelScope's cache, whatever lies in this one.
    assert find_model("a/b", None, {**environment, "VLLM_USE_MODELSCOPE": "True"}) is None


@pytest.mark.parametrize(
    "environment",
    [
        {"HF_HUB_CACHE": "{}/huggingface/hub", "HF_HOME": "/no"},
        {"HUGGINGFACE_HUB_CACHE": "{}/huggingface/hub", "HF_HOME": "/no"},
        {"HF_HOME": "{}/huggingface", "XDG_CACHE_HOME": "/no"},
        {"XDG_CACHE_HOME": "{}"},
    ],
)
def test_the_hubs_cache_is_where_its_own_library_has_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    given = {name: value.format(tmp_path) for name, value in environment.items()}
    assert find_hub_cache(given) == tmp_path / "huggingface" / "hub"
    ask = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    base = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    answer = subprocess.run(
        [sys.executable, "-c", ask],
        env={**base, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == str(find_hub_cache(given))


def _put_on_hub(hub: Path, model: str, **files: str) -> None:
    snapshot = hub / name_folder(model) / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    for name, content in files.items():
        (snapshot / name.replace("__", ".")).write_text(content)


def test_weights_are_read_where_the_engine_has_its_downloads(tmp_path: Path) -> None:
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    _put_on_hub(tmp_path / "hub", "a/b", config__json="{}", model__safetensors="stale")
    request = {"name": "a/b", "downloads": str(tmp_path / "apart")}

    def read() -> Any:
        gatherer = Gatherer(Digests(None), environment)
        return gatherer.gather({"models": {"target": request}})

    assert [one["fact"] for one in read()["unread"]] == ["model.target.weights"]
    invented = {"models": {"target": {**request, "load_format": "dummy"}}}
    assert Gatherer(Digests(None), environment).gather(invented)["unread"] == []
    _put_on_hub(tmp_path / "apart", "a/b", model__safetensors="one", quant_config__json="{}")
    found = read()
    assert found["unread"] == []
    assert set(found["model"]["target"]["downloaded_files"]) == {"quant_config.json"}
    weights = tmp_path / "apart" / "models--a--b" / "snapshots" / "main" / "model.safetensors"
    weights.write_text("two")
    assert read()["model"]["target"]["weights"] != found["model"]["target"]["weights"]


def test_defaults_of_requests_may_come_from_another_repository(model: Path, tmp_path: Path) -> None:
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    more = {"generation": "a/defaults"}
    missed = gather(target=model, more=more, environment=environment)
    assert [one["fact"] for one in missed["unread"]] == ["model.target.sampling"]
    _put_on_hub(tmp_path / "hub", "a/defaults", generation_config__json='{"top_k": 7}')
    found = gather(target=model, more=more, environment=environment)
    assert found["model"]["target"]["sampling"] == {"top_k": 7}
    assert found["unread"] == []


def test_a_mended_tokenizer_counts_with_the_version_that_saved_its_model(model: Path) -> None:
    def settings(saved_by: str, *, mended: bool) -> Any:
        (model / "config.json").write_text(json.dumps({"transformers_version": saved_by}))
        given = {"fix_mistral_regex": True} if mended else {}
        (model / "tokenizer_config.json").write_text(json.dumps(given))
        return gather(target=model)["model"]["tokenizer"].get("settings")

    assert settings("4.50.0", mended=True) != settings("5.0.0", mended=True)
    assert settings("4.50.0", mended=False) == settings("5.0.0", mended=False)


def test_the_same_weights_in_two_formats_are_read_once(tmp_path: Path) -> None:
    names = ("model.safetensors", "model-q4.gguf", "pytorch_model.bin", "training_args.bin")
    for name in names:
        (tmp_path / name).write_bytes(b"w")
    assert [path.name for path in weight_files(tmp_path)] == ["model.safetensors"]
    assert [path.name for path in weight_files(tmp_path, "npcache")] == ["pytorch_model.bin"]
    for load_format in ("pt", "tensorizer", "modelexpress", "ipc_cache"):
        assert weight_files(tmp_path, load_format) == []
    assert [path.name for path in weight_files(tmp_path, "gguf")] == ["model-q4.gguf"]
    (tmp_path / "model.safetensors").unlink()
    assert [path.name for path in weight_files(tmp_path)] == ["pytorch_model.bin"]


def test_libraries_that_compute_are_told_from_the_rest() -> None:
    line = "7f00-7f01 r-xp 00000000 fe:00 1    {}\n"
    compute = [
        "/usr/lib/x86_64-linux-gnu/libm.so.6",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15",
        "/v/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
        "/v/site-packages/tokenizers/tokenizers.abi3.so",
        "/v/site-packages/torch/lib/libtorch_cpu.so",
        "/v/site-packages/vllm/_C.abi3.so",
    ]
    rest = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/libssl.so.3",
        "/root/.cache/vllm/torch_compile_cache/a/b.so",
        "/v/site-packages/torch/share/x.bin",
    ]
    maps = "".join(line.format(path) for path in compute + rest) + "7f00-7f01 rw-p 0 00:00 0\n"
    assert parse_mapped_libraries(maps) == sorted(compute)


def test_progress_is_told_now_and_then(model: Path) -> None:
    said: list[dict[str, Any]] = []
    ticks = iter([0.0, 0.1, 1.0, 2.0])
    gatherer = Gatherer(Digests(None), {}, said.append, clock=lambda: next(ticks))
    gatherer.gather({"models": {"target": {"name": str(model)}}})
    assert said == [{"bytes": 3, "total_bytes": 6, "file": "model-1.safetensors"}]


def test_a_folder_with_a_files_name_is_no_weights(tmp_path: Path) -> None:
    (tmp_path / "cache.safetensors").mkdir()
    (tmp_path / "model.bin").write_bytes(b"1")
    assert [path.name for path in weight_files(tmp_path)] == ["model.bin"]
