from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specdeck.engine.control.protocol import EngineState

_PAGES = Path(__file__).parent / "metrics" / "pages"


@pytest.fixture(scope="session")
def page() -> Callable[[str], str]:
    """Pages of real engines, by name; `metrics/pages/README.md` tells how they were recorded."""
    return lambda name: (_PAGES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def two_engines() -> Callable[[str], str]:
    """A page as two data-parallel engines would write it: each series once for either."""

    def doubled(text: str) -> str:
        blocks: list[list[str]] = []
        for line in text.splitlines():
            if line.startswith("#") != bool(blocks and blocks[-1][0].startswith("#")) or not blocks:
                blocks.append([])
            blocks[-1].append(line)
        for block in blocks:
            block += [
                line.replace('engine="0"', 'engine="1"') for line in block if 'engine="0"' in line
            ]
        return "\n".join(line for block in blocks for line in block) + "\n"

    return doubled


@pytest.fixture(scope="session")
def state() -> Callable[..., EngineState]:
    """An engine's state, with what a test cares about put in."""
    usual = EngineState(
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
    return lambda **changed: replace(usual, **changed)
