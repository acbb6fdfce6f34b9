"""What the console needs of an engine and of a load generator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from specdeck.engine.control.protocol import Applied, Change
from specdeck.engine.metrics.reading import Reading


class Followed(Protocol):
    """An engine that can be watched and, once armed, changed."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def url(self) -> str:
        """Where it answers."""

    @property
    def armed(self) -> bool:
        """Whether changes are allowed."""

    @property
    def local(self) -> bool:
        """Whether specdeck started it here."""

    def arm(self) -> None:
        """Allow changes; raises EngineError where there is no admin token."""

    def readings(self, every: float) -> AsyncIterator[Reading]:
        """Look at it every so many seconds, for ever."""

    async def change(self, change: Change) -> Applied:
        """Ask for a change; raises EngineError when it is refused."""

    async def close(self) -> None:
        """Let go of connections."""


class Load(Protocol):
    """Load that specdeck puts on an engine."""

    @property
    def profile(self) -> str:
        """The profile that runs."""

    def next(self) -> str:
        """Switch to the next profile and name it."""
