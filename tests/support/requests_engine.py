"""An engine that tells its requests, for the console."""

from __future__ import annotations

from dataclasses import replace

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.protocol.requests import RequestLine, Requests
from tests.support.listed_engine import ListedClient, ListedEngine
from tests.support.readings import START

RUNNING = RequestLine(
    41, "running", 12.4, 812, 96, None, 20, 100, 74, 0, "50-74%", "none", "none", "greedy"
)
ACTIVE = (
    RUNNING,
    replace(RUNNING, number=42, age_s=75.0, prompt_tokens=60_000, output_tokens=9, drafted=30,
            accepted=3, cached="0%", adapter="sql-v2", temperature="sampled"),
    replace(RUNNING, number=43, state="preempted", age_s=3.0, k=2, preemptions=1,
            structured="json"),
    replace(RUNNING, number=44, state="waiting", age_s=1.0, output_tokens=0, drafts=0, drafted=0,
            accepted=0, cached="other"),
)  # fmt: skip
FINISHED = (
    replace(RUNNING, number=40, state="stop", age_s=4.0, ended=START + 59),
    replace(RUNNING, number=39, state="abort", age_s=31.0, ended=START + 50, adapter="sql-v2"),
)
TOLD = Requests("a", START + 60, 5, 3, 9, ACTIVE, FINISHED)


class RequestsClient(ListedClient):
    """Tells `told`, or why it tells nothing."""

    def __init__(self, engine: ListedEngine, told: Requests | SpecdeckError) -> None:
        super().__init__(engine)
        self.told = told

    async def requests(self) -> Requests:
        if isinstance(self.told, SpecdeckError):
            raise self.told
        return self.told
