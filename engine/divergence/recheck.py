"""A third look at a divergence: the target reads what the serving arm wrote.

Fed through in one pass, each token is the target's argmax or not, whichever of the two
arms had it right, and whatever way of decoding made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdeck.engine.divergence.answer import Answer
from specdeck.engine.divergence.ask import Asker, Refused
from specdeck.engine.divergence.compare import Divergence, Recheck
from specdeck.engine.divergence.prompts import Prompt


async def rechecked(
    found: Divergence, prompt: Prompt, *, serving: Answer, reference: Asker
) -> Divergence:
    """`found` with the target's own view; a reference's margin that is but a bound gives way."""
    seen = await recheck(found, prompt, serving=serving, reference=reference)
    if seen is not None and seen.gap is not None and found.bounded:
        found = replace(found, margin_reference=seen.gap)
    return replace(found, recheck=seen)


async def recheck(
    found: Divergence, prompt: Prompt, *, serving: Answer, reference: Asker
) -> Recheck | None:
    """What the target thinks of the serving arm's tokens up to `found`; None where it won't say."""
    if serving.prompt_ids is None or found.serving_token is None:
        return None
    said = serving.token_ids[: found.index + 1]
    thoughts = await reference.forced((*serving.prompt_ids, *said))
    if isinstance(thoughts, Refused) or len(thoughts) < len(said):
        return None
    return judged(found, said, thoughts[-len(said) :], constrained=_constrained(prompt))


def judged(
    found: Divergence,
    said: Sequence[int],
    thoughts: Sequence[Mapping[str, Any] | None],
    *,
    constrained: bool = False,
) -> Recheck | None:
    """Gap and rank of the divergent token, and the worst gap before it.

    Under a grammar the target's argmax may be forbidden, so the token that the
    reference chose is what its preference is measured against; None where the target
    does not list it, as what it would prefer among the allowed ones is not known then.
    """
    at = thoughts[found.index]
    own = None if at is None else at.get(str(found.serving_token))
    if at is None or own is None:
        return None
    best = max(float(one["logprob"]) for one in at.values())
    if constrained:
        chosen = at.get(str(found.reference_token))
        if chosen is None:
            return None
        best = float(chosen["logprob"])
    gaps = (
        []
        if constrained
        else [_gap(thought, token) for thought, token in zip(thoughts, said, strict=True)]
    )
    rank = own.get("rank")
    return Recheck(
        gap=best - float(own["logprob"]),
        rank=None if rank is None else int(rank),
        worst=max((gap for gap in gaps if gap is not None), default=None),
    )


def _gap(thought: Mapping[str, Any] | None, token: int) -> float | None:
    own = None if thought is None else thought.get(str(token))
    if thought is None or own is None:
        return None
    return max(float(one["logprob"]) for one in thought.values()) - float(own["logprob"])


def _constrained(prompt: Prompt) -> bool:
    choice = prompt.body.get("tool_choice")
    return "response_format" in prompt.body or choice == "required" or isinstance(choice, dict)
