"""Which start of an engine answers at an address: what was asked of one holds for no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdeck.engine.errors import BadPage, EngineError, NotAnEngine, Unsupported
from specdeck.engine.metrics.page import read_page

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

_ANSWER_S = 30.0
"""For a single token of an engine that has others to serve."""


@dataclass(frozen=True, slots=True)
class Life:
    """One start of an engine: by its plugin's word, else by its metrics; None is not known."""

    instance: str | None = None
    """The plugin's; each start draws another."""
    started: float | None = None
    """Unix time of the process, of an engine without the plugin."""

    def is_another(self, before: Life) -> bool:
        """Whether this is another start than `before`; False where neither tells.

        >>> Life("b").is_another(Life("a")), Life(None, 7.0).is_another(Life("a"))
        (True, True)
        >>> Life("a").is_another(Life("a")), Life().is_another(Life(None, 7.0))
        (False, False)
        """
        if self.instance != before.instance:
            return True
        return None not in (self.started, before.started) and self.started != before.started


async def is_same_engine(one: EngineClient, other: EngineClient) -> bool:
    """Whether two addresses are of one engine; False where neither tells. Raises EngineError.

    Without the plugin, an engine that has another's start is asked for a token: a script starts
    two engines within the hundredth of a second that the start is told in.
    """
    ours, theirs = await fetch_life(one), await fetch_life(other)
    if ours.instance is not None or theirs.instance is not None:
        return ours.instance == theirs.instance
    return (
        None not in (ours.started, theirs.started)
        and not ours.is_another(theirs)
        and (await _share_counters(one, other))
    )


async def _share_counters(one: EngineClient, other: EngineClient) -> bool:
    """Whether both have the same counters once `one` was asked for a token."""
    try:
        (model, *_) = await one.models() or ("",)
        body = {"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        await one.complete(body, timeout_s=_ANSWER_S)
        # Others' requests move them between two looks.
        least, seen, most = [await _count_tokens(client) for client in (one, other, one)]
    except EngineError:
        return False
    return all(
        a is not None and b is not None and c is not None and a <= b <= c and b > 0
        for a, b, c in zip(least, seen, most, strict=True)
    )


async def _count_tokens(client: EngineClient) -> tuple[float | None, float | None]:
    """Tokens of prompts and of answers since the start."""
    sample = await read_page(await client.page(), t=0.0, at=0.0)
    return sample.prompt, sample.generated


async def fetch_life(client: EngineClient) -> Life:
    """Which start answers at this moment; raises EngineError where none does."""
    try:
        return Life((await client.state()).instance)
    except Unsupported:
        return Life(None, await _fetch_process_start(client))


async def _fetch_process_start(client: EngineClient) -> float | None:
    """By the metrics page; None where that does not say, as with several API servers."""
    try:
        return (await read_page(await client.page(), t=0.0, at=0.0)).process_start
    except (NotAnEngine, BadPage):
        return None
