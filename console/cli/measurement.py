"""The end of what an engine is measured by, a sweep or a calibration: printed, whole or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from specdeck.console.cli.engines import require_vllm
from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.errors import SpecdeckError


class _Outcome(Protocol):
    """What a measurement has come to."""

    @property
    def error(self) -> SpecdeckError | None:
        """Why it could not go on; None when it was completed or interrupted."""


_O = TypeVar("_O", bound=_Outcome)
_Found = TypeVar("_Found", bound=_Outcome, covariant=True)


class _Measurement(Protocol[_Found]):
    """What runs between the beginning and the end."""

    @property
    def outcome(self) -> _Found | None:
        """What it has come to by now; None before it is planned."""


@asynccontextmanager
async def print_at_end(
    client: EngineClient, work: _Measurement[_O], print_outcome: Callable[[_O], None]
) -> AsyncIterator[None]:
    """Within it a measurement is made by `client`, which is closed after it.

    What it came to is printed however it ended, also at a signal. Raises what `print_outcome`
    does in place of that signal, else what stopped it, and NotAnEngine for a server that is no
    vLLM.
    """
    try:
        async with require_vllm(client):
            yield
    finally:
        outcome = work.outcome
        try:
            if outcome is not None:
                print_outcome(outcome)
        finally:
            await client.close()
    if outcome is not None and outcome.error is not None:
        raise outcome.error
