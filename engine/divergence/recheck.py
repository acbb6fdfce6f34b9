"""What the target says of an answer that it is fed again: in one pass, and a token at a time.

A look in one pass takes many rows through the model at once, as the verification of drafts takes
several; a look at a token that the target generates takes one. What is no noise shows in both, and
however often one asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdeck.engine.divergence.answers import Answer, Candidate
from specdeck.engine.divergence.compare import Divergence, Recheck
from specdeck.engine.divergence.floors import Flip
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.requests import LONGEST_LOOK, Asker, Refusal
from specdeck.engine.divergence.structured import is_constrained

CANDIDATES = 5
"""Log-probabilities asked for at a token that is looked at."""


async def recheck_divergence(
    found: Divergence, prompt: Prompt, *, serving: Answer, reference: Asker, near_tie: float
) -> Divergence:
    """`found` with the target's own view; a reference's margin that is but a bound gives way.

    Where the first look finds no tie, of margins up to `near_tie`, it is looked at again: in one
    pass once more, and twice as the target generates the token.
    """
    seen = await ask_target(found, prompt, serving=serving, reference=reference)
    if seen is None and _is_too_long(found, serving):
        gap = await _ask_token(found, prompt, serving=serving, reference=reference)
        seen = None if gap is None else Recheck(gap, rank=None, worst=None, looks=(gap,))
    if seen is not None and seen.gap is not None:
        if seen.gap > near_tie:
            seen = await _look_again(seen, found, prompt, serving, reference)
        if found.bounded:
            found = replace(found, margin_reference=seen.gap)
    return replace(found, recheck=seen)


async def _look_again(
    seen: Recheck, found: Divergence, prompt: Prompt, serving: Answer, reference: Asker
) -> Recheck:
    again = await ask_target(found, prompt, serving=serving, reference=reference)
    gaps = [seen.gap, None if again is None else again.gap]
    for _ in range(2):
        gaps.append(await _ask_token(found, prompt, serving=serving, reference=reference))
    looks = tuple(gap for gap in gaps if gap is not None)
    return replace(seen, gap=min(looks), looks=looks)


def _is_too_long(found: Divergence, serving: Answer) -> bool:
    """Whether the tokens up to `found` are too many for one pass."""
    return len(serving.prompt_ids or ()) + found.index + 1 > LONGEST_LOOK


async def ask_target(
    found: Divergence, prompt: Prompt, *, serving: Answer, reference: Asker
) -> Recheck | None:
    """What the target thinks of the serving arm's tokens up to `found`, in one pass.

    None where it won't say, and where they are more than LONGEST_LOOK.
    """
    if serving.prompt_ids is None or found.serving_token is None:
        return None
    if _is_too_long(found, serving):
        return None
    said = serving.token_ids[: found.index + 1]
    thoughts = await reference.score_tokens((*serving.prompt_ids, *said), CANDIDATES)
    if isinstance(thoughts, Refusal) or len(thoughts) < len(said):
        return None
    constrained, thoughts = is_constrained(prompt), thoughts[-len(said) :]
    at, other = thoughts[found.index], found.reference_token
    if constrained and at is not None and other is not None and str(other) not in at:
        # Below the likeliest ones, which a grammar may forbid all: what is fed is listed always.
        fed = await reference.score_tokens((*serving.prompt_ids, *said[:-1], other), CANDIDATES)
        if not isinstance(fed, Refusal) and fed and fed[-1] is not None:
            thoughts = [*thoughts[: found.index], {**fed[-1], **at}]
    return weigh_preference(found, said, thoughts, constrained=constrained)


async def _ask_token(
    found: Divergence, prompt: Prompt, *, serving: Answer, reference: Asker
) -> float | None:
    """The gap where the target generates the token after the same ones; None where it won't.

    It is asked from one token before, so that a row of its own decides.
    """
    if serving.prompt_ids is None:
        return None
    before = (*serving.prompt_ids, *serving.token_ids[: found.index])
    said = await reference.continue_tokens(before[:-1], 2, CANDIDATES) if found.index else None
    if isinstance(said, Answer) and said.token_ids[:1] == before[-1:] and len(said.tops) > 1:
        return _gap_among(found, said.tops[1], constrained=is_constrained(prompt))
    said = await reference.continue_tokens(before, 1, CANDIDATES)
    if not isinstance(said, Answer) or not said.tops:
        return None
    return _gap_among(found, said.tops[0], constrained=is_constrained(prompt))


def _gap_among(found: Divergence, top: Sequence[Candidate], *, constrained: bool) -> float | None:
    """The gap by the likeliest candidates; at least as much where the token is none of them."""
    if not top or found.serving_token is None:
        return None
    listed = dict(top)
    own = listed.get(found.serving_token, min(listed.values()))
    if not constrained:
        return top[0][1] - own
    chosen = None if found.reference_token is None else listed.get(found.reference_token)
    return None if chosen is None else chosen - own


def weigh_preference(
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
    rank = None if own.get("rank") is None else int(own["rank"])
    top = _rank(at)
    if constrained:
        chosen = at.get(str(found.reference_token))
        if chosen is None:
            return None
        gap = float(chosen["logprob"]) - float(own["logprob"])
        return Recheck(gap, rank, worst=None, looks=(gap,), top=top)
    gaps = [_gap(thought, token) for thought, token in zip(thoughts, said, strict=True)]
    worst = max((gap for gap in gaps if gap is not None), default=None)
    first = gaps[found.index]
    return Recheck(first, rank, worst, () if first is None else (first,), top)


def _rank(thought: Mapping[str, Any]) -> tuple[Candidate, ...]:
    listed = ((int(token), float(one["logprob"])) for token, one in thought.items())
    return tuple(sorted(listed, key=lambda one: (-one[1], one[0])))


def _gap(thought: Mapping[str, Any] | None, token: int) -> float | None:
    own = None if thought is None else thought.get(str(token))
    if thought is None or own is None:
        return None
    return max(float(one["logprob"]) for one in thought.values()) - float(own["logprob"])


async def look_at_answer(
    answer: Answer, prompt: Prompt, reference: Asker
) -> tuple[Flip, list[float]] | None:
    """What the target makes of its own answer, fed through it in one pass; None where it won't.

    The first token that it would not have said again, and how far the margins lie from those
    that it generated the answer with. Under a grammar its argmax may be forbidden.
    """
    if answer.prompt_ids is None or not answer.token_ids or is_constrained(prompt):
        return None
    tokens = (*answer.prompt_ids, *answer.token_ids)
    if len(tokens) > LONGEST_LOOK:
        return None
    thoughts = await reference.score_tokens(tokens)
    if isinstance(thoughts, Refusal) or len(thoughts) < len(answer.token_ids):
        return None
    return compare_passes(answer, thoughts[-len(answer.token_ids) :])


def compare_passes(
    answer: Answer, thoughts: Sequence[Mapping[str, Any] | None]
) -> tuple[Flip, list[float]]:
    """Where one pass over an answer disagrees with it first, and how far the margins lie apart."""
    flip: Flip = None
    distances = []
    for place, (token, top, thought) in enumerate(
        zip(answer.token_ids, answer.tops, thoughts, strict=True)
    ):
        if thought is None or str(token) not in thought:
            continue
        # Of logits that are alike, frequent in bf16, the first one is chosen (torch.argmax).
        if flip is None and (chosen := _rank(thought)[0][0]) != token:
            flip = place, chosen
        both = [thought.get(str(one)) for one, _ in top[:2]]
        if len(both) == 2 and both[0] is not None and both[1] is not None:
            margin = float(both[0]["logprob"]) - float(both[1]["logprob"])
            distances.append(margin - (top[0][1] - top[1][1]))
    return flip, distances
