"""An engine that is asked again while its core pauses, as a busy machine has it do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from specdeck.engine.control.protocol import Applied, Change, EngineState, Step
from specdeck.engine.errors import Stalled

PAUSED = "the engine core paused, and was asked again"
"""The notice of a sweep that went on after a pause."""

_AGAIN_S = 0.25
_Found = TypeVar("_Found")


class Steered(Protocol):
    """What a sweep asks of an engine; a control client is one."""

    async def state(self) -> EngineState:
        """The plugin's word."""

    async def steps(self, since: int) -> tuple[Step, ...]:
        """The steps after number `since`."""

    async def facts(self) -> dict[str, Any]:
        """The facts behind the fingerprint."""

    async def put(self, change: Change) -> Applied:
        """The engine's word on `change`."""


class Patient:
    """A Steered that repeats what the engine core was too busy to answer, a change included.

    The plugin applies no change after it said that there was no answer, so a repeated one
    is made once. Raises Stalled once `until` has passed, by `clock`.
    """

    def __init__(
        self,
        engine: Steered,
        until: Callable[[], float],
        *,
        paused: Callable[[], None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._until = until
        self._paused = paused
        self._clock = clock
        self._sleep = sleep

    async def state(self) -> EngineState:
        """The plugin's word."""
        return await self._answered(self._engine.state)

    async def steps(self, since: int) -> tuple[Step, ...]:
        """The steps after number `since`."""
        return await self._answered(lambda: self._engine.steps(since))

    async def facts(self) -> dict[str, Any]:
        """The facts behind the fingerprint."""
        return await self._answered(self._engine.facts)

    async def put(self, change: Change) -> Applied:
        """The engine's word on `change`."""
        return await self._answered(lambda: self._engine.put(change))

    async def _answered(self, ask: Callable[[], Awaitable[_Found]]) -> _Found:
        until = self._until()
        while True:
            try:
                return await ask()
            except Stalled:
                if self._clock() >= until:
                    raise
            self._paused()
            await self._sleep(_AGAIN_S)
