"""Tiers that specdeck gives an engine for its graphs: nobody runs by them, held or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support import planted_defect
from tests.support.command import Command
from tests.support.live_engine import LIMITS, Driver, LiveEngine, Prompts

from specdeck.engine.launch.command import schedule
from specdeck.engine.protocol.messages import TIERS_VARIABLE

pytestmark = pytest.mark.long

K_MAX = 6
FAILING = """
def register():
    from specdeck.engine.plugin.control import Control

    def over(core):
        raise RuntimeError("planted: this engine cannot be taken hold of")

    Control.over = over
"""


@pytest.fixture
def unheld(specdeck: Command, tmp_path: Path) -> Iterator[LiveEngine]:
    """An engine with specdeck's tiers, of which the plugin fails to take hold."""
    planted_defect.plugin(tmp_path)
    (tmp_path / "planted.py").write_text(FAILING)
    config = planted_defect.config(tmp_path)
    tiers = f"  num_speculative_tokens_per_batch_size: {schedule(K_MAX, 32)}\n"
    config.write_text(config.read_text() + tiers)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    started = LiveEngine.start(specdeck, config, PYTHONPATH=path, **{TIERS_VARIABLE: "1"})
    yield started
    started.clear_away()


async def test_an_engine_that_is_not_held_drafts_k_max_all_the_same(
    unheld: LiveEngine, prompts: Prompts
) -> None:
    async with httpx.AsyncClient(base_url=unheld.url, timeout=120, limits=LIMITS) as client:
        state = await client.get("/v1/specdeck/state")
        assert state.status_code == 500
        assert "planted" in state.text or "could not start" in state.text
        driver = Driver(client, "")
        for streams in (1, 2):
            before = await driver.counters()
            await driver.batch(prompts[:streams])
            after = await driver.counters()
            drafts = after["drafts"] - before["drafts"]
            assert drafts > 0
            assert after["drafted"] - before["drafted"] == K_MAX * drafts
