"""Greedy requests of token ids, and what becomes of their answers under changes.

A CPU that multiplies small and large batches by different kernels rounds differently in them: an
engine that never speculates answers otherwise with 16 requests than with one, where two tokens are
within a step of bfloat16 of each other. Such an answer is counted, and is none that is altered.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from specdeck.engine.divergence.calibration import COARSE, LEAST

PROMPTS = 16
TOKENS = 128

Likeness = Literal["same", "near tie", "altered"]


def prompts(seed: int) -> list[list[int]]:
    """Prompts of token ids."""
    rng = random.Random(seed)
    sizes = [rng.randrange(8, 60) for _ in range(PROMPTS)]
    return [[rng.randrange(300, 1900) for _ in range(size)] for size in sizes]


async def complete(http: httpx.AsyncClient, prompt: list[int], model: str) -> tuple[int, ...]:
    """The greedy continuation."""
    choice = await _ask(http, prompt, model)
    return tuple(choice["token_ids"])


@dataclass(frozen=True, slots=True)
class GreedyReference:
    """What target-only answers to one prompt."""

    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    """By how much each is ahead of the second best, as a log-probability."""

    def compare(self, found: Sequence[int]) -> Likeness:
        """What `found` is beside it, by the first token that is another one.

        >>> of = GreedyReference((5, 6, 7), (2.0, 0.0625, 3.0))
        >>> of.compare((5, 6, 7)), of.compare((5, 9, 1)), of.compare((5, 6, 9)), of.compare((5, 6))
        ('same', 'near tie', 'altered', 'altered')
        """
        if len(found) != len(self.tokens):
            return "altered"
        for ours, theirs, margin in zip(found, self.tokens, self.margins, strict=True):
            if ours != theirs:
                return "near tie" if margin <= LEAST * COARSE else "altered"
        return "same"


async def take_references(http: httpx.AsyncClient, asked: list[list[int]]) -> list[GreedyReference]:
    """What an engine answers now, which is to be target-only: one prompt after the other."""
    return [_read_reference(await _ask(http, prompt, "demo", logprobs=2)) for prompt in asked]


def _read_reference(choice: Mapping[str, Any]) -> GreedyReference:
    margins = []
    for likely in choice["logprobs"]["top_logprobs"]:
        best = sorted(likely.values(), reverse=True)
        margins.append(best[0] - best[1] if len(best) > 1 else float("inf"))
    return GreedyReference(tuple(choice["token_ids"]), tuple(margins))


async def _ask(
    http: httpx.AsyncClient, prompt: list[int], model: str, **more: object
) -> dict[str, Any]:
    body = {
        "model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0,
        "ignore_eos": True, "return_token_ids": True, **more,
    }  # fmt: skip
    reply = await http.post("/v1/completions", json=body)
    reply.raise_for_status()
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice
