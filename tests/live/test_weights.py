"""Weights changed in a real engine, through the routes that vLLM has for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support import planted_defect
from tests.support.command import Command
from tests.support.live_engine import LIMITS, Driver, LiveEngine, Prompts

from specdeck.engine.fingerprint.name import is_partial

pytestmark = pytest.mark.long


@pytest.fixture
def updatable(specdeck: Command, tmp_path: Path) -> Iterator[LiveEngine]:
    """An engine with vLLM's routes for trainers."""
    config = planted_defect.config(tmp_path)
    started = LiveEngine.start(specdeck, config, VLLM_SERVER_DEV_MODE="1")
    yield started
    started.clear_away()


async def test_new_weights_move_the_path_in_state_and_responses(
    updatable: LiveEngine, prompts: Prompts
) -> None:
    async with httpx.AsyncClient(base_url=updatable.url, timeout=120, limits=LIMITS) as client:
        driver = Driver(client, updatable.token)

        async def names() -> tuple[str, str]:
            body = {"model": "demo", "prompt": prompts[0], "max_tokens": 4}
            reply = await client.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text
            return str(reply.json()["system_fingerprint"]), (await driver.state())["fingerprint"]

        async def post(path: str, **body: object) -> None:
            reply = await client.post(path, json=body)
            assert reply.status_code == 200, reply.text

        # The names are partial until the files have been read.
        await driver.until(lambda state: not is_partial(state["fingerprint"]))
        found = [await names()]
        await post("/collective_rpc", method="reload_weights")
        found.append(await names())
        await post("/update_weight_version", new_version="step-100")
        found.append(await names())
        assert len({stamp for stamp, _ in found}) == len({path for _, path in found}) == 3
        assert all(path in stamp for stamp, path in found)
