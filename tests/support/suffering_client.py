"""The client of an engine whose traffic is simulated, for a console on a listed engine."""

from __future__ import annotations

from typing import Any

from specdeck.engine.errors import SpecdeckError, Unsupported
from specdeck.engine.protocol.cohorts import Cohorts
from specdeck.engine.protocol.requests import Requests
from tests.support.listed_engine import ListedClient, ListedEngine
from tests.support.simulated_traffic import Traffic


class SufferingClient(ListedClient):
    """Tells what a traffic did, or why it tells nothing."""

    def __init__(self, engine: ListedEngine, traffic: Traffic) -> None:
        super().__init__(engine)
        self.traffic = traffic
        self.refuse: SpecdeckError | None = None

    async def cohorts(self) -> Cohorts:
        if self.refuse is not None:
            raise self.refuse
        return self.traffic.tell()

    async def requests(self) -> Requests:
        finished = tuple(reversed(self.traffic.lines[-64:]))
        return Requests("one", self.traffic.t, self.traffic.k, 0, 0, (), finished)

    async def steps(self, since: int) -> tuple[Any, ...]:
        return tuple(self.traffic.steps[-4096:])

    async def facts(self) -> dict[str, Any]:
        return {}

    async def state(self) -> Any:
        raise Unsupported("no state")

    async def page(self) -> str:
        raise Unsupported("no page")
