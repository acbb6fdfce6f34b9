"""An engine for the console: a list of readings, and an answer to changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from specdeck.engine.errors import EngineError, SpecdeckError, Unsupported
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.messages import AppliedChange, Change
from specdeck.engine.protocol.requests import Requests
from specdeck.engine.protocol.tuning import Tuning
from tests.support.readings import STATE, URL


class ListedClient:
    """Has a listed engine changed; the engine tells no tuning, or why it is not under control."""

    def __init__(self, engine: ListedEngine) -> None:
        self._engine = engine

    @property
    def url(self) -> str:
        return self._engine.url

    async def put(self, change: Change) -> AppliedChange:
        return await self._engine.change(change)

    async def try_token(self) -> None:
        if self._engine.refused is not None:
            self._engine.armed = False
            raise self._engine.refused

    async def tuning(self) -> Tuning:
        errors = [reading.control_error for reading in self._engine.listed]
        raise next(filter(None, errors), Unsupported("this engine tells no tuning"))

    async def requests(self) -> Requests:
        raise Unsupported("this engine lists no requests")


class ListedEngine:
    """Gives its readings one after the other, then stays silent; changes are kept."""

    def __init__(
        self,
        readings: Sequence[Reading],
        *,
        armed: bool = True,
        name: str = "demo",
        url: str = URL,
        pace_s: float | None = None,
    ) -> None:
        self.name, self.url, self.armed, self.local = name, url, armed, True
        self.client: Any = ListedClient(self)
        self.listed = readings
        self.pace_s = pace_s
        """From one reading to the next; None gives them all at once."""
        self.asked: list[Change] = []
        self.looks = 0
        """How often a reading was wanted before it is due."""
        self.refuse_with: EngineError | None = None
        self.more: asyncio.Queue[Reading] = asyncio.Queue()
        self._read: bool | None = None
        """Whether whoever reads has taken all that there is; None before he begins."""
        self.refused: SpecdeckError | None = None
        """What is said to whoever tries the admin token."""
        self.answer = asyncio.Event()
        self.answer.set()
        states = [r.state for r in readings if r.state is not None]
        self.state = states[-1] if states else STATE

    def arm(self) -> None:
        self.armed = True

    def look(self) -> None:
        self.looks += 1

    @property
    def is_being_read(self) -> bool:
        """Whether there is a reading that was not yet taken and worked off."""
        return self._read is False or (self._read is True and not self.more.empty())

    async def readings(self, every: float) -> AsyncIterator[Reading]:
        self._read = False
        try:
            for listed in self.listed:
                yield listed
                if self.pace_s is not None:
                    await asyncio.sleep(self.pace_s)
            while True:
                self._read = True
                reading = await self.more.get()
                self._read = False
                yield reading
        finally:
            self._read = None

    async def change(self, change: Change) -> AppliedChange:
        self.asked.append(change)
        await self.answer.wait()
        if self.refuse_with is not None:
            raise self.refuse_with
        asked = change.knobs()
        before = {"k": self.state.k_set, "mode": self.state.mode, "policy": self.state.policy}
        k_set, mode = asked.get("k", self.state.k_set), asked.get("mode", self.state.mode)
        policy = asked.get("policy", "fixed" if "k" in asked else self.state.policy)
        self.state = replace(
            self.state, k_set=k_set, mode=mode, policy=policy,
            k=0 if mode == "target-only" else k_set, version=self.state.version + 1,
        )  # fmt: skip
        return AppliedChange({n: before.get(n) for n in asked}, asked, self.state.version, 7)

    async def close(self) -> None:
        return
