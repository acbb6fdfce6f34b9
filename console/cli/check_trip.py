"""`specdeck check --trip`: a failed check takes the engine to target-only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specdeck.console.cli.check_waits import waits
from specdeck.console.cli.common import find_operator
from specdeck.console.cli.engines import Access, require_vllm
from specdeck.console.cli.output import log
from specdeck.console.cli.set import request_change
from specdeck.console.cli.set_outcome import Narrator
from specdeck.engine.client.http import TOKEN_REMEDY
from specdeck.engine.client.retry import Retry
from specdeck.engine.errors import SpecdeckError, Unauthorized, UsageError
from specdeck.engine.operations.change import ChangeApplied, format_undo
from specdeck.engine.protocol.messages import Change


@dataclass(frozen=True, slots=True)
class Trip:
    """What became of a breaker that was to be opened."""

    breaker: str | None
    """As the engine has it by now; None where it could not be opened."""
    undo: str | None
    """The command that resets it."""
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The value of `tripped` in `check --json`."""
        return {"breaker": self.breaker, "undo": self.undo, "error": self.error}


async def require_token(to: Access) -> None:
    """Raises Unauthorized where --trip could do nothing, before a check is made for it."""
    client = to.client()
    try:
        if client.token() is None:
            raise Unauthorized("--trip requires the engine's admin token", remedy=TOKEN_REMEDY)
    finally:
        await client.close()


async def open_breaker(to: Access, reason: str, *, retry_s: float) -> Trip:
    """Opens the engine's breaker after a verdict of fail, until somebody resets it.

    `reason` is the verdict's. An engine that refuses is told of and in `error`, and is no
    other exit code: the verdict is a fail either way.
    """
    change = Change(
        breaker="open", cause="divergence", reason=f"specdeck check: {reason}", who=find_operator()
    )
    # Not what was before: an open breaker is reset all the same.
    reset = format_undo(to.url, {"breaker": "closed"})
    retry = Retry(retry_s, on_notice=waits)
    try:
        try:
            breaker = await retry.answer(lambda: _request(to, change, reset))
        except UsageError:  # an older plugin knows no cause: open by hand is open as well
            bare = replace(change, cause=None)
            breaker = await retry.answer(lambda: _request(to, bare, reset))
    except SpecdeckError as error:
        log(f"specdeck: the breaker is NOT open: {error.line()}")
        return Trip(None, None, error.line())
    return Trip(breaker, reset)


async def _request(to: Access, change: Change, reset: str) -> str | None:
    """Makes the change and says so; the breaker as the engine has it."""
    narrator, client = Narrator(change, to.url), to.client()
    try:
        async with require_vllm(client):
            async for event in request_change(to, client, change):
                narrator.take(event)
                if isinstance(event, ChangeApplied):
                    log("specdeck: the breaker is open, the engine runs target-only: "
                        f"`{reset}` resets it")  # fmt: skip
    finally:
        await client.close()
    return narrator.outcome().applied.applied.get("breaker")
