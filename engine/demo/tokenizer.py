"""The tokenizer that both models share: byte-level BPE with the tokens of a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 2048
BOS, EOS, PAD, END = "<|bos|>", "<|eos|>", "<|pad|>", "<|end|>"
SPECIAL = (BOS, EOS, PAD, END, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

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


def trained(texts: Iterable[str]) -> Tokenizer:
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


def save(tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
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
    text = json.dumps(config, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
