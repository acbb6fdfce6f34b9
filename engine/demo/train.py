"""Trains the demo's tokenizer, target and draft: `python -m specdeck.engine.demo.train`."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from specdeck.engine.demo import corpus, models

Loss = Callable[[Tensor], Tensor]
"""From a batch of token ids (rows, length) to a scalar."""


def batches(stream: Tensor, *, rows: int, length: int, seed: int) -> Iterator[Tensor]:
    """Rows from random places of a token stream, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(stream) - length, (rows,), generator=generator)
        yield torch.stack([stream[int(start) : int(start) + length] for start in starts])


def interleave(
    first: Iterator[Tensor], second: Iterator[Tensor], *, every: int
) -> Iterator[Tensor]:
    """Batches of `first`, and each `every`-th one from `second`."""
    number = 0
    while True:
        number += 1
        yield next(second if number % every == 0 else first)


def learning_rate(step: int, steps: int, *, peak: float) -> float:
    """The learning rate: a short climb, then half a cosine down to a twentieth.

    >>> learning_rate(0, 1000, peak=1.0) < learning_rate(50, 1000, peak=1.0)
    True
    >>> round(learning_rate(1000, 1000, peak=1.0), 3)
    0.05
    """
    climb = min(1.0, (step + 1) / 50)
    return peak * climb * (0.05 + 0.95 * (1 + math.cos(math.pi * step / steps)) / 2)


def learn(
    name: str,
    model: LlamaForCausalLM,
    data: Iterator[Tensor],
    loss_of: Loss,
    *,
    steps: int,
    peak: float,
) -> None:
    """Minimise `loss_of` over `steps` batches, with a progress line on stderr."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    scales = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": scales, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)
    model.train()
    began, smooth = time.monotonic(), math.nan
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak=peak)
        loss = loss_of(next(data))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        smooth = loss.item() if math.isnan(smooth) else 0.95 * smooth + 0.05 * loss.item()
        if (step + 1) % 25 == 0 or step + 1 == steps:
            passed = time.monotonic() - began
            print(
                f"{name}: step {step + 1}/{steps}, loss {smooth:.3f}, {passed:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def text_loss(model: LlamaForCausalLM) -> Loss:
    """The cross-entropy of the next token."""

    def loss(ids: Tensor) -> Tensor:
        logits = model(input_ids=ids).logits[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return loss


def distillation_loss(draft: LlamaForCausalLM, target: LlamaForCausalLM) -> Loss:
    """How far the draft is from the target's distribution and from its first choice.

    A draft token is accepted when it is the target's first choice, so that choice counts by
    itself; the whole distribution teaches faster than the choice alone.
    """

    def loss(ids: Tensor) -> Tensor:
        with torch.no_grad():
            taught = target(input_ids=ids).logits.flatten(0, 1)
        logits = draft(input_ids=ids).logits.flatten(0, 1)
        likeness = functional.kl_div(
            functional.log_softmax(logits, -1),
            functional.log_softmax(taught, -1),
            log_target=True,
            reduction="batchmean",
        )
        return likeness + functional.cross_entropy(logits, taught.argmax(-1))

    return loss


def continue_prompts(model: LlamaForCausalLM, prompts: Tensor, *, tokens: int) -> Tensor:
    """The prompts (rows, length) with the greedy continuation of each, end tokens ignored."""
    model.eval()
    pieces, new, cache = [prompts], prompts, None
    with torch.no_grad():
        for _ in range(tokens):
            out = model(input_ids=new, past_key_values=cache, use_cache=True)
            cache, new = out.past_key_values, out.logits[:, -1:].argmax(-1)
            pieces.append(new)
    return torch.cat(pieces, dim=1)


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


def encode(words: Tokenizer, texts: list[str]) -> list[Tensor]:
    """Every document as token ids, between the tokens that begin and end one."""
    end = words.token_to_id(models.EOS)
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


def write_continuations(target: LlamaForCausalLM, prompts: Tensor) -> Tensor:
    """One stream of what the target writes after the prompts."""
    pieces = []
    for number, group in enumerate(prompts.split(64), start=1):
        pieces.append(continue_prompts(target, group, tokens=ROW - PROMPT))
        print(f"target writes: {number * 64}/{len(prompts)} texts", file=sys.stderr, flush=True)
    return torch.cat(pieces).flatten()


def train_target(stream: Tensor, steps: int) -> LlamaForCausalLM:
    """The target, trained on the text."""
    model = models.TARGET.model(SEED)
    data = batches(stream, rows=TARGET_ROWS, length=ROW, seed=SEED)
    learn("target", model, data, text_loss(model), steps=steps, peak=3e-3)
    return model.eval()


def distill_draft(
    target: LlamaForCausalLM, documents: list[Tensor], steps: int
) -> LlamaForCausalLM:
    """The draft, distilled from the target on its own greedy text and on the corpus."""
    own = write_continuations(target, openings(documents, GENERATED_ROWS))
    data = interleave(
        batches(own, rows=DRAFT_ROWS, length=ROW, seed=SEED + 1),
        batches(torch.cat(documents), rows=DRAFT_ROWS, length=ROW, seed=SEED + 2),
        every=3,
    )
    model = models.DRAFT.model(SEED + 3)
    loss = distillation_loss(model, target)
    learn("draft", model, data, loss, steps=steps, peak=5e-3)
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
    words = models.train_tokenizer(texts)
    documents = encode(words, texts)
    print(f"text: {sum(map(len, documents))} tokens, {len(texts)} documents", file=sys.stderr)
    target = as_served(train_target(torch.cat(documents), TARGET_STEPS // options.quick))
    draft = distill_draft(target, documents, DRAFT_STEPS // options.quick)
    for name, model, sizes in (("target", target, models.TARGET), ("draft", draft, models.DRAFT)):
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        models.save_tokenizer(words, folder, context=models.CONTEXT)
        models.save_model(model, sizes, folder)
    print(f"done in {time.monotonic() - began:.0f} s: {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
