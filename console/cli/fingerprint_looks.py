"""Looks at an engine's fingerprint, with the reading of its weights told on stderr."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from specdeck.console.cli.engines import Access
from specdeck.console.cli.talk import say

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.fingerprint import Fingerprint, Progress


async def looked(to: Access, *, behaviour: bool, wait: bool = True) -> Fingerprint:
    """The fingerprint of an engine; `wait` is for weights that it still reads."""
    from specdeck.engine.fingerprint.query import fetch_fingerprint, fetch_finished

    client = to.client()
    try:
        seen = (
            await fetch_finished(client, told=_say_reading())
            if wait
            else await fetch_fingerprint(client)
        )
        if behaviour:
            from dataclasses import replace

            from specdeck.engine.fingerprint.query import probe_behaviour

            seen = replace(seen, behaviour=await probe_behaviour(client))
        return seen
    finally:
        await client.close()


def say_progress(seen: Fingerprint) -> None:
    """Warns of names that will move."""
    if not seen.progress.finished:
        say(f"specdeck: the engine is {seen.progress.line()}: the names will move once")


def _say_reading() -> Callable[[Progress], None]:
    """Says each line of progress once."""
    last = ""

    def say_new(progress: Progress) -> None:
        nonlocal last
        if progress.line() != last:
            last = progress.line()
            say(f"specdeck: the engine is {last}")

    return say_new
