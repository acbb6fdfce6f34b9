"""An engine that is a list of readings, and small makers of readings."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from specdeck.console.app import Console
from specdeck.console.settings import Settings
from specdeck.engine.control.protocol import Applied, Capability, Change, EngineState
from specdeck.engine.errors import EngineError, Unreachable
from specdeck.engine.metrics.reading import Gpu, Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window

if TYPE_CHECKING:
    from textual.pilot import Pilot

URL = "http://127.0.0.1:8000"
START = 1_795_236_000.0
ABLE = (
    Capability("live_k", True), Capability("target_only", True), Capability("policy.fixed", True),
    Capability("policy.goodput", True),
)  # fmt: skip
DOWN = Unreachable("no answer within 2 s", remedy="is the process stopped?")

STATE = EngineState(
    protocol=1, plugin="0.1.0", instance="a", version=1, started=START, vllm="0.32.0",
    model="demo-target", method="draft_model", runner="V1", k=5, k_set=5, k_max=5,
    mode="speculate", fallback="warm", policy="fixed", breaker="closed", step=0, drafts=0,
    drafted_per_position=(0,) * 5, accepted_per_position=(0,) * 5, running=4, waiting=0,
    fingerprint="sd1:0f3a9c1288aa", system_fingerprint="vllm-0.32.0-09d54272",
    capabilities=ABLE,
)  # fmt: skip


def window(n: int, k: int = 5) -> Window:
    """A second of work that depends on nothing but `n` and `k`."""
    swing = math.sin(n / 6)
    drafts, rate = 120.0 + 10 * swing, 0.7 + 0.1 * swing
    positions = tuple(drafts * rate ** (i + 1) if i < k else 0.0 for i in range(5))
    drafted = tuple(drafts if i < k else 0.0 for i in range(5))
    spread = Histogram((0.005, 0.01, 0.04, math.inf), (20.0, 60.0, 98.0, 100.0))
    if not k:
        return Window(1.0, 150.0, 0.0, 0.0, 0.0, positions, drafted, 0.0, spread, spread)
    return Window(
        1.0, drafts + sum(positions), drafts, drafts * k, sum(positions), positions,
        drafted, 0.0, spread, spread,
    )  # fmt: skip


def reading(n: int, state: EngineState | None = STATE, **changes: object) -> Reading:
    """The engine's `n`-th answer, one second after the one before."""
    t = START + n
    sample = Sample(t, float(n), "demo-target", running=4.0, waiting=0.0, kv_cache_usage=0.12)
    k = 5 if state is None else state.k
    found = Reading(t, URL, sample, window(n, k) if n else None, state)
    return replace(found, **changes)  # type: ignore[arg-type]  # tests name Reading's fields


def down(n: int, error: EngineError = DOWN) -> Reading:
    """The engine did not answer."""
    return Reading(START + n, URL, error=error)


def run(count: int, state: EngineState = STATE, first: int = 0) -> list[Reading]:
    """So many answers in a row."""
    return [reading(n, state) for n in range(first, first + count)]


class ListedEngine:
    """Gives its readings one after the other, then stays silent; changes are kept."""

    def __init__(
        self, readings: list[Reading], *, armed: bool = True, name: str = "demo", url: str = URL
    ) -> None:
        self.name, self.url, self.armed, self.local = name, url, armed, True
        self.listed = readings
        self.asked: list[Change] = []
        self.refuse_with: EngineError | None = None
        self.more: asyncio.Queue[Reading] = asyncio.Queue()
        self.answer = asyncio.Event()
        self.answer.set()
        states = [r.state for r in readings if r.state is not None]
        self.state = states[-1] if states else STATE

    def arm(self) -> None:
        self.armed = True

    async def readings(self, every: float) -> AsyncIterator[Reading]:
        for listed in self.listed:
            yield listed
        while True:
            yield await self.more.get()

    async def change(self, change: Change) -> Applied:
        self.asked.append(change)
        await self.answer.wait()
        if self.refuse_with is not None:
            raise self.refuse_with
        asked = change.asked()
        before = {"k": self.state.k_set, "mode": self.state.mode, "policy": self.state.policy}
        k_set, mode = asked.get("k", self.state.k_set), asked.get("mode", self.state.mode)
        policy = asked.get("policy", "fixed" if "k" in asked else self.state.policy)
        self.state = replace(
            self.state, k_set=k_set, mode=mode, policy=policy,
            k=0 if mode == "target-only" else k_set, version=self.state.version + 1,
        )  # fmt: skip
        return Applied({name: before[name] for name in asked}, asked, self.state.version, 7)

    async def close(self) -> None:
        return


MakeConsole = Callable[..., Console]


@pytest.fixture
def console() -> MakeConsole:
    """A console whose clock stands still and whose day is UTC."""

    def make(*engines: ListedEngine, theme: str = "dark", **settings: object) -> Console:
        chosen = Settings(interval=1.0, theme=theme)
        return Console(
            engines,
            **{"settings": chosen, "clock": lambda: START + 60, "local": time.gmtime, "who": "ann",
               **settings},  # type: ignore[arg-type]  # tests name Console's arguments
        )  # fmt: skip

    return make


GPU = Gpu(0, "NVIDIA H100", 0.83, 61 << 30, 80 << 30, 512.0)


class Kit:
    """What the tests of this folder build engines from."""

    state = STATE
    gpu = GPU
    start = START
    engine = ListedEngine
    reading = staticmethod(reading)
    window = staticmethod(window)
    down = staticmethod(down)
    run = staticmethod(run)


@pytest.fixture
def kit() -> type[Kit]:
    """Engines, readings and states."""
    return Kit


Until = Callable[["Pilot[str]", Callable[[], object]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Waits for what a worker brings."""

    async def wait(pilot: Pilot[str], done: Callable[[], object]) -> None:
        for _ in range(1500):
            if done():
                return
            await pilot.pause(0.01)
        raise AssertionError(f"it does not come to an end on {pilot.app.screen}")

    return wait
