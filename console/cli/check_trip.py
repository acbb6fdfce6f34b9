"""`specdeck check --trip`: a failed check takes the engine to target-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specdeck.console.cli.check_waits import waits
from specdeck.console.cli.engines import Access, access
from specdeck.console.cli.operator import operator
from specdeck.console.cli.set_asking import Record, applied
from specdeck.console.cli.talk import say
from specdeck.engine.client.http import TOKEN_REMEDY
from specdeck.engine.client.retry import Retry
from specdeck.engine.control.protocol import Applied, Change
from specdeck.engine.errors import SpecdeckError, Unauthorized, UsageError

if TYPE_CHECKING:
    from specdeck.engine.control.observe import Outcome

Options = dict[str, Any]


async def armed(options: Options) -> None:
    """Raises Unauthorized where --trip could do nothing, before a check is made for it."""
    if not options["trip"]:
        return
    client = _access(options).client()
    try:
        if client.token() is None:
            raise Unauthorized("--trip wants the engine's admin token", remedy=TOKEN_REMEDY)
    finally:
        await client.close()


async def tripped(options: Options, data: dict[str, Any]) -> dict[str, Any] | None:
    """Opens the engine's breaker after a verdict of fail; what became of that.

    None where it was not asked for, or there was no need. It stays open until somebody
    resets it. An engine that refuses is told of and in `error`, and is no other exit
    code: the verdict is a fail either way.
    """
    if not options["trip"] or data["verdict"] != "fail":
        return None
    from specdeck.engine.control.observe import undo

    to = _access(options)
    reason = f"specdeck check: {data['reason']}"
    change = Change(breaker="open", cause="divergence", reason=reason, who=operator())
    record = Record(change, to)
    # Not what was before: an open breaker is reset all the same.
    reset = undo(to.url, {"breaker": "closed"})

    def answered(applied: Applied) -> None:
        record.answered(applied)
        say(f"specdeck: the breaker is open, the engine runs target-only: `{reset}` resets it")

    try:
        retry = Retry(options["patience"], on_notice=waits)
        outcome = await retry.answer(lambda: _opened(to, change, answered))
    except SpecdeckError as error:
        say(f"specdeck: the breaker is NOT open: {error.line()}")
        return {"breaker": None, "undo": None, "error": error.line()}
    record.observed(outcome)
    return {"breaker": outcome.applied.get("breaker"), "undo": reset, "error": None}


async def _opened(to: Access, change: Change, answered: Callable[[Applied], None]) -> Outcome:
    try:
        return await applied(to, change, answered)
    except UsageError:  # an older plugin knows no cause: open by hand is open as well
        return await applied(to, replace(change, cause=None), answered)


def _access(options: Options) -> Access:
    return access(
        options["engine"], api_key_env=options["api_key_env"], token_file=options["token_file"]
    )
