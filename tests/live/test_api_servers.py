"""An engine behind two API servers: every one of them steers the same engine core."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import httpx
import pytest
from tests.support.command import Command
from tests.support.live_engine import LIMITS, MODELS, Driver, LiveEngine, Prompts

from specdeck.engine.launch import process

pytestmark = pytest.mark.long

CONFIG = f"""
model: {MODELS / "target"}
served_model_name: demo
dtype: bfloat16
max_model_len: 1024
max_num_seqs: 32
block_size: 32
enforce_eager: true
api_server_count: 2
speculative_config:
  method: draft_model
  model: {MODELS / "draft"}
  num_speculative_tokens: 5
environment:
  HF_HUB_OFFLINE: "1"
"""
FLIPS = 60


@pytest.fixture(scope="module")
def two(specdeck: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    """An engine behind two API servers."""
    config = tmp_path_factory.mktemp("two") / "two.yaml"
    config.write_text(CONFIG)
    started = LiveEngine.start(specdeck, config)
    yield started
    started.clear_away()


async def test_two_api_servers_steer_one_engine_and_end_with_it(
    two: LiveEngine, prompts: Prompts
) -> None:
    leader = process.find_leader(two.pid)
    assert leader is not None
    assert len([one for one in process.members(leader) if "APIServer" in one.name]) == 2
    # The kernel deals connections out to the servers: one for each request meets both.
    async with httpx.AsyncClient(base_url=two.url, timeout=120, limits=LIMITS) as client:
        driver = Driver(client, two.token)
        await driver.put(k=0)
        reference = await driver.batch(prompts)
        for k in (5, 2):
            await driver.put(k=k)
            drafts, drafted = await counted(client)
            assert await driver.batch(prompts) == reference
            more, most = await counted(client)
            assert most - drafted == k * (more - drafts) > 0
        rng = random.Random(11)
        async with driver.streams(prompts[:4]) as outputs:
            for _ in range(FLIPS):
                await driver.put(k=rng.randint(0, 5))
        assert outputs
        assert [number for number, found in outputs if found != reference[number]] == []
    two.stop()
    assert process.members(leader) == ()


async def counted(client: httpx.AsyncClient) -> tuple[float, float]:
    """Drafts and draft tokens, by vLLM's counters of both processes."""
    page = (await client.get("/metrics")).text
    names = ("num_drafts", "num_draft_tokens")
    found = [re.findall(rf"^vllm:spec_decode_{name}_total\S* (\S+)$", page, re.M) for name in names]
    drafts, drafted = (sum(map(float, values)) for values in found)
    return drafts, drafted
