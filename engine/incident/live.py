"""What an engine still answers when it is asked for an incident; each question may fail alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from specdeck.engine.errors import SpecdeckError, Stalled, Unreachable
from specdeck.engine.metrics.page import read_page
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.cohorts import Cohorts
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.protocol.requests import Requests
from specdeck.engine.protocol.tuning import Tuning
from specdeck.engine.text import oneline

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

_T = TypeVar("_T")
PATIENCE_S: Final = 8.0
"""For one answer; the client gives up earlier by itself."""


@dataclass(slots=True)
class Live:
    """What the engine said; None is what it did not."""

    t: float
    """Unix time at which it was asked, seconds."""
    sample: Sample | None = None
    state: EngineState | None = None
    tuning: Tuning | None = None
    facts: dict[str, Any] | None = None
    cohorts: Cohorts | None = None
    requests: Requests | None = None
    steps: tuple[Step, ...] | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """Why something is not there, by its name."""

    @property
    def up(self) -> bool:
        """Whether it answered at all."""
        return self.sample is not None or self.state is not None


async def ask_engine(
    client: EngineClient,
    *,
    wall: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Live:
    """Everything it tells. An engine that is not there is asked once: the rest has its reason."""
    live = Live(wall())
    gone: SpecdeckError | None = None

    async def ask(name: str, question: Callable[[], Awaitable[_T]]) -> _T | None:
        nonlocal gone
        if gone is not None:
            live.missing[name] = _reason(gone)
            return None
        on_progress(name)
        try:
            return await asyncio.wait_for(question(), PATIENCE_S)
        except TimeoutError:
            live.missing[name] = f"no answer within {PATIENCE_S:.0f} s"
        except SpecdeckError as error:
            live.missing[name] = _reason(error)
            # A core that hangs still has a server that tells its counters.
            if isinstance(error, Unreachable) and not isinstance(error, Stalled):
                gone = error
        return None

    async def read_sample() -> Sample:
        return await read_page(await client.page(), t=wall(), at=clock())

    live.sample = await ask("metrics", read_sample)
    live.state = await ask("state", client.state)
    live.tuning = await ask("tuning", client.tuning)
    live.cohorts = await ask("cohorts", client.cohorts)
    live.requests = await ask("requests", client.requests)
    live.facts = await ask("facts", client.facts)
    live.steps = await ask("steps", lambda: client.steps(0))
    return live


def _reason(error: SpecdeckError) -> str:
    return oneline(error.line())
