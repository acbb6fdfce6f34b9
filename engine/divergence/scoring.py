"""What the reference thinks of every token that was drawn, asked and summed up prompt by prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specdeck.engine.divergence.likelihood import (
    CANDIDATES,
    Contrast,
    Places,
    Surprise,
    Visible,
    contrast,
    fit,
    measure_surprise,
    visible_effects,
)
from specdeck.engine.divergence.privacy import refusal_reason
from specdeck.engine.divergence.requests import (
    LONGEST_LOOK,
    Asker,
    Continuations,
    Refusal,
    Thoughts,
)

if TYPE_CHECKING:
    from specdeck.engine.divergence.pacing import Pacer

AT_ONCE = 8
"""Continuations that the reference is given at a time."""
_UNNAMED = Refusal("the engine does not say which tokens the prompt has")
_TOO_LONG = Refusal(f"the prompts have more than {LONGEST_LOOK} tokens with what was drawn")


@dataclass(frozen=True, slots=True)
class Scores:
    """Both arms' surprises, the reference's twice."""

    temperature: float
    serving: Surprise
    reference: Surprise
    again: Surprise

    @property
    def contrast(self) -> Contrast:
        """Serving against all draws of the reference."""
        return contrast(self.serving, self.reference + self.again)

    @property
    def control(self) -> Contrast:
        """The reference against itself."""
        return contrast(self.again, self.reference)

    @property
    def own_fit(self) -> Contrast:
        """The reference's draws by its own probabilities: low where it does not sample by them."""
        return fit(self.reference + self.again)

    def visible(self, *, alpha: float) -> Visible:
        """The smallest effects that these draws show, at the level `alpha`."""
        theirs = self.reference + self.again
        return visible_effects(self.serving, theirs, temperature=self.temperature, alpha=alpha)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **self.contrast.as_json(),
            "tokens": self.serving.tokens,
            "rare": {
                "serving": _rare(self.serving),
                "reference": _rare(self.reference + self.again),
            },
            "control": self.control.as_json(),
            "reference_fit": self.own_fit.as_json(),
        }


def _rare(found: Surprise) -> dict[str, float]:
    return {"tokens": found.tokens, "rare": found.rare, "expected": found.rare_expected}


class Scorer:
    """Has the reference look at the draws of one prompt after another."""

    def __init__(self, reference: Asker, temperature: float, pace: Pacer | None) -> None:
        self._reference = reference
        self._temperature = temperature
        self._pace = pace
        self._gate = asyncio.Semaphore(1 if pace else AT_ONCE)
        self._sums = (Surprise(), Surprise(), Surprise())
        self._refused: Refusal | None = None
        self._left_out = False

    async def score(
        self, serving: Continuations, reference: Continuations, again: Continuations
    ) -> None:
        """Takes in the draws of a prompt; nothing more once the reference has refused.

        Of prompts of more than LONGEST_LOOK tokens, draws included, nothing is asked.
        """
        if self._refused is not None:
            return
        prompt_ids = reference.prompt_ids
        if prompt_ids is None:
            self._refused = _UNNAMED
            return
        arms = (serving.draws, reference.draws, again.draws)
        distinct = list(dict.fromkeys(draw for arm in arms for draw in arm if len(draw) > 1))
        if len(prompt_ids) + max(map(len, distinct), default=0) > LONGEST_LOOK:
            self._left_out = True
            return
        said = await asyncio.gather(*(self._weigh(prompt_ids, draw) for draw in distinct))
        known: dict[tuple[int, ...], tuple[Thoughts, ...]] = {}
        for draw, thoughts in zip(distinct, said, strict=True):
            if isinstance(thoughts, Refusal):
                self._refused = thoughts
                return
            known[draw] = thoughts
        one, two, three = (
            total + measure_surprise(lay_out_places(arm, known), self._temperature)
            for total, arm in zip(self._sums, arms, strict=True)
        )
        self._sums = one, two, three

    async def _weigh(
        self, prompt_ids: tuple[int, ...], draw: tuple[int, ...]
    ) -> tuple[Thoughts, ...] | Refusal:
        async with self._gate, self._pace.turn() if self._pace else nullcontext():
            return await self._reference.weigh_tokens(
                (*prompt_ids, *draw), last=len(draw) - 1, candidates=CANDIDATES
            )

    def scores(self) -> Scores | None:
        """Those of all prompts; None where the reference gives no log-probabilities."""
        if self._refused is not None or not self._sums[0].tokens:
            return None
        return Scores(self._temperature, *self._sums)

    def refusal(self, *, private: bool) -> str | None:
        """Why there are no scores; None where there are some, or nothing to score."""
        refused = self._refused or (
            _TOO_LONG if self._left_out and not self._sums[0].tokens else None
        )
        return None if refused is None else refusal_reason(refused, private=private)


def lay_out_places(
    draws: Iterable[tuple[int, ...]], known: Mapping[tuple[int, ...], tuple[Thoughts, ...]]
) -> Places:
    """All tokens of an arm's `draws` of one prompt but the first of each, which no draft made."""
    import numpy as np

    numbers: dict[tuple[int, ...], int] = {}
    own: list[int] = []
    prefix: list[int] = []
    tops: list[tuple[float, ...]] = []
    for draw in draws:
        for place, thought in enumerate(known.get(draw, ()), start=1):
            tops.append(thought.candidates)
            own.append(-1 if thought.own is None else thought.own)
            prefix.append(numbers.setdefault(draw[:place], len(numbers)))
    table = np.full((len(tops), CANDIDATES), -np.inf)
    for row, values in enumerate(tops):
        table[row, : len(values)] = values
    return Places(table, np.array(own, dtype=np.int64), np.array(prefix, dtype=np.int64))
