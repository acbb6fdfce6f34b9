"""Whether the names of a fingerprint are those of the facts beside them.

They come in one reply, each as the engine's word: a name that was kept too long, or belongs to
another reply, looks as good as any until the facts are named again.
"""

from __future__ import annotations

from typing import Literal

from specdeck.engine.client.secret import has_replaced_part
from specdeck.engine.fingerprint.fingerprint import Fingerprint, Unread
from specdeck.engine.fingerprint.name import SCHEMA, compute_names, layer_of

NameDoubt = Literal["schema", "hidden", "differ"]

DOUBTS: dict[NameDoubt, str] = {
    "schema": f"are of another schema than {SCHEMA}",
    "hidden": "cannot be checked: a fact is spelt like an API key or token, which is hidden",
    "differ": "do not follow from the facts that came with them",
}

_FACT = "names"


def check_names(seen: Fingerprint) -> NameDoubt | None:
    """Why the names of `seen` are not known to be of its facts; None where they are.

    `hidden` is no fault of the engine: a secret is taken out of every answer, facts or not.
    """
    if (layer_of(seen.build), layer_of(seen.path)) != ("build", "path"):
        return "schema"
    partial = any(one.fact != _FACT for one in seen.unread)
    if (seen.build, seen.path) == compute_names(seen.facts, partial=partial):
        return None
    return "hidden" if has_replaced_part(seen.facts) else "differ"


def doubts_of(seen: Fingerprint) -> tuple[Unread, ...]:
    """What is not known of `seen` where its names are in doubt, as facts that are not known are."""
    doubt = check_names(seen)
    return () if doubt is None else (Unread(_FACT, DOUBTS[doubt]),)
