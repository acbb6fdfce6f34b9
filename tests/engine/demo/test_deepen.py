import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from specdeck.engine.demo.deepen import RECEIPT, deepen_model, read, write


@pytest.fixture
def small(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    weights = LlamaForCausalLM(LlamaConfig(**config)).to(torch.bfloat16).state_dict()
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors")
    return folder


def logits(folder: Path) -> torch.Tensor:
    config = LlamaConfig(**json.loads((folder / "config.json").read_text()))
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    missing, unexpected = model.load_state_dict(
        load_file(folder / "model.safetensors"), strict=False
    )
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    with torch.no_grad():
        return model(input_ids=torch.arange(40).reshape(2, 20)).logits


def test_more_layers_give_the_very_same_logits(small: Path, tmp_path: Path) -> None:
    deep = deepen_model(small, 7, tmp_path / "deep")
    assert json.loads((deep / "config.json").read_text())["num_hidden_layers"] == 7
    assert torch.equal(logits(deep), logits(small))


def test_all_but_the_weights_is_taken_along(small: Path, tmp_path: Path) -> None:
    (small / "chat_template.jinja").write_text("{{ messages }}")
    (small / "tokenizer.model").write_bytes(b"pieces")
    (small / "pytorch_model.bin").write_bytes(b"the same once more")
    deep = deepen_model(small, 4, tmp_path / "deep")
    assert (deep / "chat_template.jinja").read_text() == "{{ messages }}"
    assert (deep / "tokenizer.model").read_bytes() == b"pieces"
    assert not (deep / "pytorch_model.bin").exists()


def test_a_folder_that_is_there_is_used_again(small: Path, tmp_path: Path) -> None:
    deep = deepen_model(small, 4, tmp_path / "deep")
    made = (deep / "model.safetensors").stat().st_mtime_ns
    assert deepen_model(small, 4, tmp_path / "deep") == deep
    assert (deep / "model.safetensors").stat().st_mtime_ns == made


@pytest.mark.parametrize("layers", [4, 5])
def test_other_weights_or_another_depth_are_made_anew(
    small: Path, tmp_path: Path, layers: int
) -> None:
    deep = deepen_model(small, 4, tmp_path / "deep")
    before = (deep / RECEIPT).read_text()
    weights = load_file(small / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, small / "model.safetensors")
    deepen_model(small, layers, deep)
    assert (deep / RECEIPT).read_text() != before
    assert torch.equal(logits(deep), logits(small))


def test_what_a_killed_start_has_left_goes(small: Path, tmp_path: Path) -> None:
    left = tmp_path / ".deep-4711-abcdefgh"
    left.mkdir()
    (left / "model.safetensors").touch()
    deepen_model(small, 4, tmp_path / "deep")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "small"]


def test_a_folder_left_half_done_is_no_model(small: Path, tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "config.json").write_text("{")
    assert torch.equal(logits(deepen_model(small, 3, deep)), logits(small))


def test_nothing_but_the_model_is_left_beside_it(small: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    deepen_model(small, 3, cache / "deep")
    deepen_model(small, 4, cache / "deep")
    assert [path.name for path in cache.iterdir()] == ["deep"]


def test_a_failure_leaves_nothing(small: Path, tmp_path: Path) -> None:
    (small / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(ValueError, match="no layers"):
        deepen_model(small, 3, tmp_path / "cache" / "deep")
    assert list((tmp_path / "cache").iterdir()) == []


def test_fewer_layers_are_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 layers"):
        deepen_model(small, 1, tmp_path / "deep")


def test_tensors_survive_being_written_and_read(small: Path, tmp_path: Path) -> None:
    weights = read(small / "model.safetensors")
    write(weights, tmp_path / "again.safetensors")
    again, first = load_file(tmp_path / "again.safetensors"), load_file(small / "model.safetensors")
    assert again.keys() == first.keys()
    assert all(torch.equal(again[name], first[name]) for name in first)
