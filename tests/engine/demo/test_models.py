import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from specdeck.engine.demo.deepen import read

MODELS = Path(__file__).parents[3] / "sample_configs" / "models"
PAIR = ("target", "draft")
BUDGET = 6 * 2**20
"""Bytes of everything that is shipped."""


def loaded(name: str, file: str) -> Any:
    return json.loads((MODELS / name / file).read_text(encoding="utf-8"))


def test_the_pair_keeps_within_six_mebibytes() -> None:
    assert sum(p.stat().st_size for p in MODELS.rglob("*") if p.is_file()) <= BUDGET


def test_both_models_share_one_vocabulary() -> None:
    target, draft = (loaded(name, "tokenizer.json") for name in PAIR)
    assert target == draft
    assert len(target["model"]["vocab"]) == loaded("target", "config.json")["vocab_size"] == 2048


@pytest.mark.parametrize("name", PAIR)
def test_config_and_weights_agree(name: str) -> None:
    config, weights = loaded(name, "config.json"), read(MODELS / name / "model.safetensors")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] >= 1024
    rows, columns = weights["model.embed_tokens.weight"].shape
    assert (rows, columns) == (config["vocab_size"], config["hidden_size"])
    assert {weight.dtype for weight in weights.values()} == {"BF16"}
    layers = {key.split(".")[2] for key in weights if key.startswith("model.layers.")}
    assert len(layers) == config["num_hidden_layers"]


@pytest.mark.parametrize("name", PAIR)
def test_the_tokenizer_gives_back_what_it_was_given(name: str) -> None:
    tokenizer = Tokenizer.from_file(str(MODELS / name / "tokenizer.json"))
    text = "def grüße(self):\n    return 'naïve', 1234  # ☃\n"
    encoded = tokenizer.encode(text)
    assert encoded.tokens[0] == "<|bos|>"
    assert tokenizer.decode(encoded.ids) == text


@pytest.mark.parametrize("name", PAIR)
def test_the_named_tokens_are_where_the_config_says(name: str) -> None:
    tokenizer = Tokenizer.from_file(str(MODELS / name / "tokenizer.json"))
    config, generation = loaded(name, "config.json"), loaded(name, "generation_config.json")
    assert tokenizer.token_to_id("<|bos|>") == config["bos_token_id"]
    assert tokenizer.token_to_id("<|pad|>") == config["pad_token_id"]
    ends = [tokenizer.token_to_id("<|eos|>"), tokenizer.token_to_id("<|end|>")]
    assert generation["eos_token_id"] == ends


def test_the_chat_template_writes_messages_tools_and_calls() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS / "target")
    tool = {"type": "function", "function": {"name": "find", "parameters": {}}}
    call = {"type": "function", "function": {"name": "find", "arguments": {"name": "a"}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Find a"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "found"},
    ]
    text = tokenizer.apply_chat_template(
        messages, tools=[tool], tokenize=False, add_generation_prompt=True
    )
    assert text.startswith('<|bos|><|system|>\nTools:\n{"type": "function"')
    assert text.endswith(
        "<|system|>\nBe brief.<|end|>\n<|user|>\nFind a<|end|>\n<|assistant|>\n<tool_call>\n"
        '{"name": "find", "arguments": {"name": "a"}}\n</tool_call><|end|>\n'
        "<|tool|>\nfound<|end|>\n<|assistant|>\n"
    )
