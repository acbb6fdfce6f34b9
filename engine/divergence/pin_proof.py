"""What shows that the draws of a soft reference were left without drafts, prompt by prompt.

vLLM does not say what was drafted for several draws of one request. So either each draw's name
tells its pin, or greedy answers to the same prompts say what was drafted for them. One prompt
does not speak for others: a router may send these to an engine that drops pins.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass

from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.pacing import Pacer
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.requests import Asker, Continuations, Refusal
from specdeck.engine.divergence.runner import refuse_disobeyed
from specdeck.engine.fingerprint.name import pinned_k


@dataclass(slots=True)
class PinProof:
    """The evidence of one check, gathered as its prompts are drawn from."""

    by_name: bool = False
    """Whether the engine's name tells a pin: then that of every draw has to."""
    has_contrast: bool = False
    """Whether a pinned answer had no draft where the same request has some without the pin."""
    is_broken: bool = False
    """Whether some prompt's draws or answer showed nothing."""

    @property
    def is_shown(self) -> bool:
        """Whether nothing was drafted for the reference's draws, as far as an engine can show."""
        return (self.by_name or self.has_contrast) and not self.is_broken

    async def ask(
        self, serving: Asker, reference: Asker, prompt: Prompt, pace: Pacer | None
    ) -> None:
        """Asks for what the draws of a prompt do not tell; nothing where their name does.

        No draft is no proof where the same request has none without the pin either. Raises
        Unsupported where something was drafted for a pinned request.
        """
        if self.by_name or self.is_broken:
            return
        pinned = await _ask(reference, prompt, pace)
        if pinned is None:
            return
        refuse_disobeyed(reference.arm, pinned)
        if pinned_k(pinned.system_fingerprint) == 0:
            self.by_name = not self.has_contrast
        elif pinned.drafted is None:
            self.is_broken = len(pinned.token_ids) > 1
        elif not self.has_contrast:
            unpinned = await _ask(serving, prompt, pace)
            self.has_contrast = unpinned is not None and bool(unpinned.drafted)

    def hold(self, draws: Iterable[Continuations]) -> None:
        """Holds the reference's draws of one prompt against what its name is known to tell."""
        self.is_broken |= self.by_name and not all(each.names_pin for each in draws)


async def _ask(asker: Asker, prompt: Prompt, pace: Pacer | None) -> Answer | None:
    """Its greedy answer; None where it is refused."""
    async with pace.turn() if pace else nullcontext():
        answer = await asker.answer(prompt)
    return None if isinstance(answer, Refusal) else answer
