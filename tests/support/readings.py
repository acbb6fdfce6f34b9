"""Readings of an engine: each depends on its number alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from specdeck.engine.errors import EngineError, Unreachable
from specdeck.engine.metrics.reading import Gpu, Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import Capability, EngineState
from tests.support.engine_state import engine_state

URL = "http://127.0.0.1:8000"
START = 1_795_236_000.0
"""When the engine started, in seconds since 1970."""
STATE = engine_state(
    instance="a", version=1, started=START, model="demo-target", step=0, drafts=0,
    drafted_per_position=(0,) * 5, accepted_per_position=(0,) * 5,
    fingerprint="sd1:0f3a9c1288aa",
    capabilities=(
        Capability("live_k", True), Capability("target_only", True),
        Capability("policy.fixed", True), Capability("policy.goodput", True),
    ),
)  # fmt: skip
DOWN = Unreachable("no answer within 2 s", remedy="is the process stopped?")
GPU = Gpu(0, "NVIDIA H100", 0.83, 61 << 30, 80 << 30, 512.0)


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


def reading(n: int, state: EngineState | None = STATE, **changes: Any) -> Reading:
    """The engine's `n`-th answer, one second after the one before."""
    t = START + n
    sample = Sample(
        t, float(n), "demo-target", preemptions=0.0, prefix_queries=400.0 * n,
        prefix_hits=244.0 * n, running=4.0, waiting=0.0, kv_cache_usage=0.12,
    )  # fmt: skip
    k = 5 if state is None else state.k
    found = Reading(t, URL, sample, window(n, k) if n else None, state)
    return replace(found, **changes)


def down(n: int, error: EngineError = DOWN) -> Reading:
    """The engine did not answer."""
    return Reading(START + n, URL, error=error)


def readings(count: int, state: EngineState = STATE, first: int = 0) -> list[Reading]:
    """So many answers in a row."""
    return [reading(n, state) for n in range(first, first + count)]
