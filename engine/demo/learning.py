"""How the two models learn: the target from text, the draft from the target."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

Loss = Callable[[Tensor], Tensor]
"""From a batch of token ids (rows, length) to a scalar."""


def batches(stream: Tensor, *, rows: int, length: int, seed: int) -> Iterator[Tensor]:
    """Rows from random places of a token stream, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(stream) - length, (rows,), generator=generator)
        yield torch.stack([stream[int(start) : int(start) + length] for start in starts])


def mixed(first: Iterator[Tensor], second: Iterator[Tensor], *, every: int) -> Iterator[Tensor]:
    """Batches of `first`, and each `every`-th one from `second`."""
    number = 0
    while True:
        number += 1
        yield next(second if number % every == 0 else first)


def rate(step: int, steps: int, *, peak: float) -> float:
    """The learning rate: a short climb, then half a cosine down to a twentieth.

    >>> rate(0, 1000, peak=1.0) < rate(50, 1000, peak=1.0)
    True
    >>> round(rate(1000, 1000, peak=1.0), 3)
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
            group["lr"] = rate(step, steps, peak=peak)
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


def of_text(model: LlamaForCausalLM) -> Loss:
    """The cross-entropy of the next token."""

    def loss(ids: Tensor) -> Tensor:
        logits = model(input_ids=ids).logits[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return loss


def of_teacher(draft: LlamaForCausalLM, target: LlamaForCausalLM) -> Loss:
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


def continued(model: LlamaForCausalLM, prompts: Tensor, *, tokens: int) -> Tensor:
    """The prompts (rows, length) with the greedy continuation of each, end tokens ignored."""
    model.eval()
    pieces, new, cache = [prompts], prompts, None
    with torch.no_grad():
        for _ in range(tokens):
            out = model(input_ids=new, past_key_values=cache, use_cache=True)
            cache, new = out.past_key_values, out.logits[:, -1:].argmax(-1)
            pieces.append(new)
    return torch.cat(pieces, dim=1)
