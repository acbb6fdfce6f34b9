"""Draws of a made-up language model, honest and not, with what its target thinks of each.

Contexts are distributions over a small vocabulary, some sure, some flat; the token that is drawn
in one chooses the next, so that draws with a common beginning share their contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specdeck.engine.divergence.likelihood import CANDIDATES, Places, measure_surprise
from specdeck.engine.divergence.sampled import Sampling
from specdeck.engine.divergence.scoring import Scores

VOCABULARY = 400
CONTEXTS = 4000
_SCALES = ((16.0, 0.45), (6.0, 0.35), (3.0, 0.2))
"""Of logits, and the share of contexts: from sure to flat."""


@dataclass(frozen=True)
class Fault:
    """What the serving arm does wrong."""

    temperature: float = 1.0
    """It samples at so many times the temperature it is asked for."""
    unchecked: float = 0.0
    """The share of tokens that are drafts accepted unchecked."""
    flat: bool = False
    """Drafts are equally likely to be any token; otherwise a smaller model's."""


HONEST = Fault()


class Language:
    """The target, its draft model, and arms that round otherwise."""

    def __init__(self, seed: int = 0, *, temperature: float = 1.0) -> None:
        random = np.random.default_rng(seed)
        scales, shares = zip(*_SCALES, strict=True)
        scale = random.choice(scales, size=CONTEXTS, p=shares)
        self.temperature = temperature
        self.logits = random.normal(size=(CONTEXTS, VOCABULARY)) * scale[:, None]
        self.logits -= _log_sum(self.logits)
        blur = random.normal(size=self.logits.shape)
        self._draft = 0.7 * self.logits + blur
        order = np.argsort(-self.logits, axis=1, kind="stable")
        self._rank = np.argsort(order, axis=1, kind="stable")
        self._honest = _cumulated(self.logits / temperature)
        self._tops = np.take_along_axis(self.logits, order[:, :CANDIDATES], axis=1)

    def noise(self, seed: int, size: float) -> np.ndarray:
        """What an arm's rounding adds to the logits, always the same in one context."""
        return np.asarray(np.random.default_rng(seed).normal(0.0, size, self.logits.shape))

    def draw(
        self,
        prompts: int,
        samples: int,
        tokens: int,
        random: np.random.Generator,
        *,
        fault: Fault = HONEST,
        noise: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Continuations and their contexts: prompts × samples × tokens."""
        sums = drafts = self._honest
        if noise is not None or fault.temperature != 1.0:
            logits = self.logits if noise is None else self.logits + noise
            sums = _cumulated(logits / (self.temperature * fault.temperature))
        if fault.unchecked:
            draft = np.zeros_like(self.logits) if fault.flat else self._draft
            drafts = _cumulated(draft / self.temperature)
        shape = prompts, samples
        context = np.repeat(np.arange(prompts)[:, None], samples, axis=1)
        drawn = np.zeros((*shape, tokens), dtype=np.int64)
        contexts = np.zeros_like(drawn)
        for place in range(tokens):
            contexts[:, :, place] = context
            token = _pick(sums, context, random)
            if place and fault.unchecked:
                wrong = random.random(shape) < fault.unchecked
                token = np.where(wrong, _pick(drafts, context, random), token)
            drawn[:, :, place] = token
            context = (context * 7919 + token * 104729 + 13) % CONTEXTS
        return drawn, contexts

    def places(self, drawn: np.ndarray, contexts: np.ndarray) -> Places:
        """What the target thinks of all tokens but the first of each."""
        at, token = contexts[:, :, 1:].ravel(), drawn[:, :, 1:].ravel()
        rank = self._rank[at, token]
        return Places(self._tops[at], np.where(rank < CANDIDATES, rank, -1), at)


Continuations = tuple[np.ndarray, np.ndarray]
"""Continuations and their contexts."""


def draw_arms(
    language: Language,
    seed: int,
    *,
    prompts: int = 20,
    fault: Fault = HONEST,
    noise: float = 0.0,
    asked: Sampling,
) -> list[Continuations]:
    """The serving arm's draws and the reference's, twice; arms round otherwise by `noise` nats."""
    random = np.random.default_rng(seed)
    ours = language.noise(2 * seed, noise) if noise else None
    theirs = language.noise(2 * seed + 1, noise) if noise else None
    return [
        language.draw(prompts, asked.samples, asked.tokens, random, fault=wrong, noise=rounding)
        for wrong, rounding in ((fault, ours), (HONEST, theirs), (HONEST, theirs))
    ]


def score_draws(language: Language, arms: list[Continuations]) -> Scores:
    """What the target thinks of all tokens."""
    serving, reference, again = (
        measure_surprise(language.places(*each), language.temperature) for each in arms
    )
    return Scores(language.temperature, serving, reference, again)


def score_arms(
    language: Language, seed: int, *, fault: Fault = HONEST, noise: float = 0.0
) -> Scores:
    """What a check at the defaults finds."""
    return score_draws(
        language, draw_arms(language, seed, fault=fault, noise=noise, asked=Sampling())
    )


def _log_sum(logits: np.ndarray) -> np.ndarray:
    most: np.ndarray = logits.max(axis=1, keepdims=True)
    found: np.ndarray = most + np.log(np.exp(logits - most).sum(axis=1, keepdims=True))
    return found


def _cumulated(logits: np.ndarray) -> np.ndarray:
    """Cumulated probabilities, each context's above those before it, as one sorted row."""
    sums = np.cumsum(np.exp(logits - _log_sum(logits)), axis=1)
    sums /= sums[:, -1:]
    row: np.ndarray = (sums + np.arange(len(logits))[:, None]).ravel()
    return row


def _pick(sums: np.ndarray, context: np.ndarray, random: np.random.Generator) -> np.ndarray:
    found = np.searchsorted(sums, context + random.random(context.shape))
    return np.asarray(found - context * VOCABULARY)
