"""The sizes of the two models, and how they are written as folders that vLLM loads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from specdeck.engine.demo.tokenizer import SPECIAL, VOCABULARY

# Tokens; the rotary positions go on past the length of a training row.
CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one Llama model."""

    layers: int
    hidden: int
    heads: int
    inner: int
    """Width of the MLP."""

    def config(self) -> dict[str, Any]:
        """The model's config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.hidden // self.heads,
            "hidden_act": "silu",
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "initializer_range": 0.02,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": SPECIAL.index("<|bos|>"),
            "eos_token_id": SPECIAL.index("<|eos|>"),
            "pad_token_id": SPECIAL.index("<|pad|>"),
            "torch_dtype": "bfloat16",
            "use_cache": True,
        }

    def model(self, seed: int) -> LlamaForCausalLM:
        """An untrained model in float32 whose weights `seed` decides."""
        torch.manual_seed(seed)
        settings = self.config() | {"torch_dtype": "float32"}
        return LlamaForCausalLM(LlamaConfig(**settings))


TARGET = Shape(layers=4, hidden=192, heads=6, inner=512)
DRAFT = Shape(layers=1, hidden=128, heads=4, inner=384)


def save(model: LlamaForCausalLM, shape: Shape, folder: Path) -> None:
    """Write weights (bfloat16), config.json and generation_config.json."""
    # The head is the embedding: written once, as tie_word_embeddings says.
    weights = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors leaves it to its owner alone
    generation = {
        "bos_token_id": SPECIAL.index("<|bos|>"),
        "eos_token_id": [SPECIAL.index("<|eos|>"), SPECIAL.index("<|end|>")],
        "pad_token_id": SPECIAL.index("<|pad|>"),
        "do_sample": False,
    }
    for name, content in (("config", shape.config()), ("generation_config", generation)):
        text = json.dumps(content, indent=2) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
