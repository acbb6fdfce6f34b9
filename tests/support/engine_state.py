"""States of an engine, with what a test cares about put in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specdeck.engine.protocol.messages import EngineState

_USUAL = EngineState(
    protocol=1,
    plugin="0.1.0",
    instance="one",
    version=0,
    started=1000.0,
    vllm="0.32.0",
    model="demo",
    method="draft_model",
    runner="V1",
    k=5,
    k_set=5,
    k_max=5,
    mode="speculate",
    fallback="warm",
    policy="fixed",
    breaker="closed",
    step=100,
    drafts=50,
    drafted_per_position=(50, 50, 50, 50, 50),
    accepted_per_position=(40, 30, 20, 10, 5),
    running=4,
    waiting=0,
    fingerprint="sd1:0f3a",
    system_fingerprint="vllm-0.32.0-09d54272",
)


def engine_state(**changes: Any) -> EngineState:
    """The state of an engine that drafts five tokens and has served a hundred steps."""
    return replace(_USUAL, **changes)
