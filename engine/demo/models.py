"""The demo's two models as folders that vLLM loads: sizes, weights, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 2048
BOS, EOS, PAD, END = "<|bos|>", "<|eos|>", "<|pad|>", "<|end|>"
SPECIAL = (BOS, EOS, PAD, END, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
"""The first tokens of the vocabulary: the place of each is its id."""

# Each message is its role's token, a line break, the text and <|end|>. Tools are listed as JSON in
# front; a call is JSON between <tool_call> tags, which vLLM's `hermes` tool parser reads.
CHAT_TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
{{- '<|system|>\\nTools:\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}
{{- '<|end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- set known = message.role in ['user', 'assistant', 'tool'] %}
{{- '<|' + (message.role if known else 'system') + '|>\\n' }}
{%- if message.content is string %}{{ message.content }}
{%- elif message.content %}
{%- for part in message.content %}{{ part.text or '' }}{% endfor %}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{%- if call.function.arguments is string %}{{ call.function.arguments }}
{%- else %}{{ call.function.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}
"""


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of `VOCABULARY` tokens learnt from the texts."""
    tokenizer = Tokenizer(models.BPE())
    # Digits stand alone, so that counting is one rule and not a hundred tokens.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{BOS} $A",
                pair=f"{BOS} $A $B",
                special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
            ),
        ]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
    """Write tokenizer.json and tokenizer_config.json; `context` is in tokens."""
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "additional_special_tokens": [t for t in SPECIAL if t not in (BOS, EOS, PAD)],
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


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
            "bos_token_id": SPECIAL.index(BOS),
            "eos_token_id": SPECIAL.index(EOS),
            "pad_token_id": SPECIAL.index(PAD),
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


def save_model(model: LlamaForCausalLM, shape: Shape, folder: Path) -> None:
    """Write weights (bfloat16), config.json and generation_config.json."""
    # The head is the embedding: written once, as tie_word_embeddings says.
    weights = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors leaves it to its owner alone
    _write_json(folder / "config.json", shape.config())
    generation = {
        "bos_token_id": SPECIAL.index(BOS),
        "eos_token_id": [SPECIAL.index(EOS), SPECIAL.index(END)],
        "pad_token_id": SPECIAL.index(PAD),
        "do_sample": False,
    }
    _write_json(folder / "generation_config.json", generation)
