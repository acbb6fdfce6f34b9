"""Trains the demo's tokenizer, target and draft: `python -m specdeck.engine.demo.train`.

Seeded throughout. Two threads and about ten minutes on two CPU cores; the same machine and the
same Python give the same text and very nearly the same weights.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from specdeck.engine.demo import corpus, learning, shape, tokenizer

SEED = 20
ROW = 320
"""Tokens in a row: longer than a demo request's prompt and answer together."""
TARGET_ROWS, DRAFT_ROWS = 4, 6
"""Rows in a batch: many small steps teach more in ten minutes than few large ones."""
PREDICTABLE = 0.35
"""The share of boilerplate in the training text: enough to be learnt well, not all there is."""
TARGET_STEPS = 1400
DRAFT_STEPS = 1600
GENERATED_ROWS = 512
PROMPT = 64
"""Tokens of a document that the target continues when it writes for the draft."""


def encoded(words: Tokenizer, texts: list[str]) -> list[Tensor]:
    """Every document as token ids, between the tokens that begin and end one."""
    end = words.token_to_id(tokenizer.EOS)
    return [torch.tensor([*e.ids, end]) for e in words.encode_batch(texts)]


def openings(documents: list[Tensor], rows: int) -> Tensor:
    """The first `PROMPT` tokens of documents, and of random places in those that are long."""
    torch.manual_seed(SEED)
    found = []
    for document in documents * 8:
        start = 0 if len(document) < 2000 else int(torch.randint(len(document) - PROMPT, (1,)))
        piece = document[start : start + PROMPT]
        if len(piece) == PROMPT:
            found.append(piece)
    order = torch.randperm(len(found))[:rows]
    return torch.stack([found[int(n)] for n in order])


def written_by(target: LlamaForCausalLM, prompts: Tensor) -> Tensor:
    """One stream of what the target writes after the prompts."""
    pieces = []
    for number, group in enumerate(prompts.split(64), start=1):
        pieces.append(learning.continued(target, group, tokens=ROW - PROMPT))
        print(f"target writes: {number * 64}/{len(prompts)} texts", file=sys.stderr, flush=True)
    return torch.cat(pieces).flatten()


def target_from(stream: Tensor, steps: int) -> LlamaForCausalLM:
    """The target, trained on the text."""
    model = shape.TARGET.model(SEED)
    data = learning.batches(stream, rows=TARGET_ROWS, length=ROW, seed=SEED)
    learning.learn("target", model, data, learning.of_text(model), steps=steps, peak=3e-3)
    return model.eval()


def draft_from(target: LlamaForCausalLM, documents: list[Tensor], steps: int) -> LlamaForCausalLM:
    """The draft, distilled from the target on its own greedy text and on the corpus."""
    own = written_by(target, openings(documents, GENERATED_ROWS))
    data = learning.mixed(
        learning.batches(own, rows=DRAFT_ROWS, length=ROW, seed=SEED + 1),
        learning.batches(torch.cat(documents), rows=DRAFT_ROWS, length=ROW, seed=SEED + 2),
        every=3,
    )
    model = shape.DRAFT.model(SEED + 3)
    loss = learning.of_teacher(model, target)
    learning.learn("draft", model, data, loss, steps=steps, peak=5e-3)
    return model


def as_served(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The model with weights rounded to bfloat16, so that the draft learns what is shipped."""
    return model.to(torch.bfloat16).to(torch.float32)


def main() -> None:
    """Train the pair and write both folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("sample_configs/models"))
    parser.add_argument("--quick", type=int, default=1, metavar="N", help="an Nth of the steps")
    options = parser.parse_args()
    began = time.monotonic()
    torch.set_num_threads(2)
    texts = corpus.documents(SEED, predictable=PREDICTABLE)
    words = tokenizer.trained(texts)
    documents = encoded(words, texts)
    print(f"text: {sum(map(len, documents))} tokens, {len(texts)} documents", file=sys.stderr)
    target = as_served(target_from(torch.cat(documents), TARGET_STEPS // options.quick))
    draft = draft_from(target, documents, DRAFT_STEPS // options.quick)
    for name, model, sizes in (("target", target, shape.TARGET), ("draft", draft, shape.DRAFT)):
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(words, folder, context=shape.CONTEXT)
        shape.save(model, sizes, folder)
    print(f"done in {time.monotonic() - began:.0f} s: {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
