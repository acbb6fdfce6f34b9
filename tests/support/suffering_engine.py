"""An engine over HTTP whose traffic is simulated: each look at it finds it some seconds on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import httpx

from specdeck.engine.protocol.messages import PREFIX, EngineState
from specdeck.engine.protocol.requests import Requests
from tests.support.engine_state import engine_state
from tests.support.http_engine import HttpEngine
from tests.support.simulated_traffic import T0, Traffic


class SufferingEngine(HttpEngine):
    """Tells what a `Traffic` did; it goes on for `pace_s` at each look at its cohorts."""

    def __init__(self, traffic: Traffic, *, pace_s: float = 5.0) -> None:
        super().__init__()
        self.traffic, self.pace_s = traffic, pace_s
        self.instance = "one"
        self.answers |= {
            f"{PREFIX}/cohorts": self._tell_cohorts,
            f"{PREFIX}/requests": self._tell_requests,
            f"{PREFIX}/steps": self._tell_steps,
            f"{PREFIX}/state": self._tell_state,
            f"{PREFIX}/facts": (200, {"facts": {}}),
        }

    def state(self) -> EngineState:
        """What it says of itself."""
        return engine_state(started=T0, k=self.traffic.k, instance=self.instance)

    def _tell_state(self, _: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=self.state().as_json())

    def _tell_cohorts(self, _: httpx.Request) -> httpx.Response:
        self.traffic.run(self.pace_s, pieces=1)
        told: dict[str, Any] = {**self.traffic.tell().as_json(), "instance": self.instance}
        return httpx.Response(200, json=told)

    def _tell_requests(self, _: httpx.Request) -> httpx.Response:
        finished = tuple(reversed(self.traffic.lines[-64:]))
        told = Requests(self.instance, T0 + self.traffic.t, self.traffic.k, 0, 0, (), finished)
        return httpx.Response(200, json=told.as_json())

    def _tell_steps(self, _: httpx.Request) -> httpx.Response:
        steps = [step.as_json() for step in self.traffic.steps[-4096:]]
        return httpx.Response(200, json={"steps": steps})


def as_plain(record: Any) -> dict[str, Any]:
    """A record as the wire has it."""
    return asdict(record)
