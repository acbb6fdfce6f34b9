"""Whether an engine started without speculation is otherwise the one to compare it with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdeck.engine.errors import Unsupported
from specdeck.engine.fingerprint.compare import find_another_target
from specdeck.engine.fingerprint.query import OnProgress, fetch_finished
from specdeck.engine.text import format_count

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

_PATIENCE_S = 3600.0
"""For weights that are read from a slow disk; a reading that stands still is given up earlier."""
_NAMED = 2
"""Facts in the error."""


async def refuse_another_target(
    serving: EngineClient, reference: EngineClient, *, on_progress: OnProgress
) -> None:
    """Looks at both engines' facts once they have read their weights.

    Raises Unsupported where the target or what runs it is another one, as where its files were
    replaced after `serving` was started, and EngineError where the facts do not come.
    """
    before = await fetch_finished(serving, on_progress=on_progress, patience_s=_PATIENCE_S)
    after = await fetch_finished(reference, on_progress=on_progress, patience_s=_PATIENCE_S)
    found = find_another_target(before, after)
    if not found:
        return
    named = ", ".join(one.line() for one in found[:_NAMED])
    more = len(found) - _NAMED
    rest = f" and {format_count(more, 'fact')} more" if more > 0 else ""
    raise Unsupported(
        f"what {serving.url} was started from is another target by now ({named}{rest}), so the "
        "difference would not be that of speculation",
        remedy="put it back as it was, restart the engine, or give --reference URL",
    )
