"""Whether the policies and the breaker can go by what `orchestration` says."""

from __future__ import annotations

from specdeck.engine.config.document import Document
from specdeck.engine.config.schema import Orchestration
from specdeck.engine.policy.catalogue import block_of


def check_tuned(document: Document, orchestration: Orchestration) -> None:
    """ConfigError where a value is at odds with the others of what it is a parameter of.

    Only what is in force from the start: bounds that suit goodput need not suit threshold.
    """
    given = orchestration.model_dump(exclude_none=True)
    starts = (orchestration.policy or "goodput",) if orchestration.adaptive_draft else ()
    for block in ("breaker", *starts):
        what = block if block == "breaker" else f"{block} policy"
        _, refused = block_of(block, given)
        for key, reason in refused.items():
            raise document.error(
                ("orchestration", key),
                f"`{key}` makes no sense for the {what}: {reason}",
                "change it or leave it out",
            )
