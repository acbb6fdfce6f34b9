"""What a check keeps and prints of prompts, answers, refusals and structures.

Of a prompt its hash, always. Of an answer the tokens where the arms part, of a refusal the
engine's reason, of a structure what differs where; a private check keeps none of these, only
margins, kinds and how deep a difference lies. What nothing was kept of is not printed either.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

from specdeck.engine.divergence.compare import Divergence, PromptAnswers, StructureChange
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.requests import Refusal
from specdeck.engine.divergence.structured import Violation
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.store.checks import Compared

REASON_NOT_STORED = "the engine's reason is not stored"


def hash_prompt(prompt: Prompt) -> str:
    """16 digits that name the request and tell nothing of it."""
    return hashlib.sha256(canonical(prompt.body)).hexdigest()[:16]


def describe_answers(answers: PromptAnswers, *, private: bool) -> tuple[Compared, ...]:
    """The pairs of one prompt as the store gets them."""
    number, named = answers.prompt.number, hash_prompt(answers.prompt)
    return tuple(
        Compared(number, pair, named, detail=_describe_divergence(found, private=private))
        for pair, found in answers.pairs.items()
    )


def describe_refusal(prompt: Prompt, refused: Refusal, *, private: bool) -> Compared:
    """A prompt that was not answered, as the store gets it."""
    reason = refusal_reason(refused, private=private)
    return Compared(prompt.number, "cross", hash_prompt(prompt), refused=reason)


def refusal_reason(refused: Refusal, *, private: bool) -> str:
    """Why an engine did not answer; not when `private`, as its reason may quote the prompt."""
    return REASON_NOT_STORED if private else refused.reason


def hide_answers(found: Divergence) -> Divergence:
    """`found` without anything that was said: it weighs the same."""
    return replace(
        found,
        serving_token=None,
        reference_token=None,
        serving_top=(),
        reference_top=(),
        structure=tuple(_hide_change(change) for change in found.structure),
        recheck=None if found.recheck is None else replace(found.recheck, top=()),
        violation=None if found.violation is None else _hide_violation(found.violation),
    )


def _describe_divergence(found: Divergence | None, *, private: bool) -> dict[str, Any] | None:
    if found is None:
        return None
    return (hide_answers(found) if private else found).as_json()


def _hide_change(change: StructureChange) -> StructureChange:
    if change.kind == "more":
        return change
    return replace(change, path=_hide_names(change.path), reference=None, serving=None)


def _hide_violation(broken: Violation) -> Violation:
    return replace(broken, path=_hide_names(broken.path), why="")


def _hide_names(path: str) -> str:
    """How deep a path leads, without the names in it, which an answer may have made up.

    >>> _hide_names("$"), _hide_names("limit"), _hide_names("calls[1].limit")
    ('depth 0', 'depth 1', 'depth 3')
    """
    return f"depth {0 if path == '$' else len(re.split('[.[]', path))}"
